//! The words of errors of this project's crates: enums whose variants have fixed ones, and their use as `Debug`.

/// Makes an enum with one text for each variant, which [`core::fmt::Display`] writes.
#[doc(hidden)]
#[macro_export]
macro_rules! worded {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_variant:meta])* $variant:ident = $words:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                out.write_str(match self {
                    $($name::$variant => $words,)*
                })
            }
        }
    };
}

/// Makes `Debug` of an error its text, so that `unwrap`, and a `main` that returns the error, print a
/// sentence. The alternate form, `{:#?}`, shows the variant with its fields, as `#[derive(Debug)]` does. Each
/// variant has to be listed with its fields; a variant in parentheses has one.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_in_words {
    ($name:ident { $($variant:ident $({ $($field:ident),+ $(,)? })? $(($inner:ident))?,)* }) => {
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                if !out.alternate() {
                    return ::core::fmt::Display::fmt(self, out);
                }
                match self {
                    $($name::$variant $({ $($field),+ })? $(($inner))? => {
                        $crate::debug_in_words!(@out $variant $({ $($field),+ })? $(($inner))?)
                    })*
                }
            }
        }
    };
    (@$out:ident $variant:ident) => { $out.write_str(stringify!($variant)) };
    (@$out:ident $variant:ident ($inner:ident)) => {
        $out.debug_tuple(stringify!($variant)).field($inner).finish()
    };
    (@$out:ident $variant:ident { $($field:ident),+ }) => {
        $out.debug_struct(stringify!($variant))$(.field(stringify!($field), $field))+.finish()
    };
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec::Vec;

    enum Fault {
        Plain,
        Holds(u8),
        Says { what: &'static str },
    }

    impl core::fmt::Display for Fault {
        fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            out.write_str("a sentence")
        }
    }

    debug_in_words!(Fault { Plain, Holds(number), Says { what }, });

    #[test]
    fn errors_are_shown_as_sentences_and_their_structure_on_request() {
        let all = [Fault::Plain, Fault::Holds(7), Fault::Says { what: "it" }];
        assert_eq!(format!("{:?}", all.each_ref()), "[a sentence, a sentence, a sentence]");
        assert_eq!(
            all.map(|fault| format!("{fault:#?}").split_whitespace().collect::<Vec<_>>().join(" ")),
            ["Plain", "Holds( 7, )", "Says { what: \"it\", }"]
        );
    }
}
