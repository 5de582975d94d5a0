//! Enums whose variants have fixed words, for the errors of this project's crates.

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
