//! The table of options: what each row says, and the macro that makes configurations of rows.

use super::kinds::Shape;
use super::{ConfigFault, Given};

bitflags::bitflags! {
    /// The interfaces that show an option.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Interfaces: u8 {
        /// Fields of the configuration, and methods of the builder.
        const RUST = 1;
        /// `farjump_target_config_set` and its kin.
        const C = 2;
        /// Keyword arguments.
        const PYTHON = 4;
        /// Arguments of the program `farjump`.
        const COMMAND_LINE = 8;
        /// Arguments of the module of Redis and Valkey.
        const MODULE = 16;
        /// Lines of the file of `serve --config`.
        const FILE = 32;
        /// Variables of the environment, for the program alone.
        const ENVIRONMENT = 64;
        /// Those of the program `farjump`.
        const PROGRAM = Self::COMMAND_LINE.bits() | Self::FILE.bits() | Self::ENVIRONMENT.bits();
        /// Those of libraries.
        const LIBRARY = Self::RUST.bits() | Self::C.bits() | Self::PYTHON.bits();
    }
}

/// What the table says of an option.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OptionInfo {
    /// Its name, with hyphens: `max-payload`. Rust and Python write it with underscores.
    pub name: &'static str,
    /// Lines of its description. Those before the first empty line are its sentence.
    pub lines: &'static [&'static str],
    /// Shape of its values.
    pub shape: Shape,
    /// Stands for a value: `BYTES`.
    pub placeholder: &'static str,
    /// Its default in words.
    pub default: &'static str,
    /// Smallest and largest value, in bytes, nanoseconds or as a number.
    pub range: Option<(u64, u64)>,
    /// Whether it reserves memory: then no value may exceed that of the machine.
    pub memory: bool,
    /// The options without which it has no effect.
    pub needs: &'static [&'static str],
    /// The interfaces that show it.
    pub shown: Interfaces,
    /// Its name in interfaces of earlier versions.
    pub formerly: &'static [&'static str],
    /// Whether the items of its list are words, which have no commas.
    pub words: bool,
    /// The feature of the build that it needs.
    pub feature: Option<&'static str>,
}

impl OptionInfo {
    /// A row of which nothing is said: that of a program and of libraries.
    pub(crate) const PLAIN: OptionInfo = OptionInfo {
        name: "",
        lines: &[],
        shape: Shape::Text,
        placeholder: "",
        default: "",
        range: None,
        memory: false,
        needs: &[],
        shown: Interfaces::LIBRARY.union(Interfaces::PROGRAM),
        formerly: &[],
        words: false,
        feature: None,
    };

    /// The first paragraph of its description, as one line of plain text.
    pub fn sentence(&self) -> String {
        let first = self.lines.iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
        first.collect::<Vec<_>>().join(" ")
    }

    /// Its name in Rust and in Python.
    pub fn field(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Its variable in the environment of the program: `FARJUMP_MAX_PAYLOAD`.
    pub fn variable(&self) -> String {
        format!("FARJUMP_{}", self.field().to_uppercase())
    }

    /// Returns whether `name` is its name, with hyphens or underscores.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        name.len() == self.name.len()
            && name.bytes().zip(self.name.bytes()).all(|(one, own)| one == own || (one, own) == (b'_', b'-'))
    }
}

/// An option of `C`.
#[derive(Debug)]
pub struct Row<C> {
    /// What the table says of it.
    pub info: OptionInfo,
    pub(crate) set: fn(&mut C, &Given<'_>) -> Result<(), String>,
    pub(crate) get: fn(&C) -> Option<String>,
    pub(crate) amount: fn(&C) -> Option<u64>,
    pub(crate) show_amount: fn(u64) -> String,
}

impl<C: Default> Row<C> {
    /// Returns whether `config` has another value than the default.
    pub fn is_set(&self, config: &C) -> bool {
        (self.get)(config) != (self.get)(&C::default())
    }

    /// Checks the value in `config` against the range, and the memory of the machine.
    pub(crate) fn check(&self, config: &C) -> Result<(), ConfigFault> {
        let Some(amount) = (self.amount)(config) else { return Ok(()) };
        let shown = self.show_amount;
        let (least, most) = self.info.range.unwrap_or((0, u64::MAX));
        if !(least..=most).contains(&amount) {
            let most = (most != u64::MAX).then(|| shown(most).into());
            return Err(ConfigFault::Range { value: shown(amount).into(), least: shown(least).into(), most });
        }
        if self.info.memory && self.is_set(config) {
            let memory = farjump_os::resources::memory();
            if amount > memory {
                return Err(ConfigFault::Memory {
                    value: shown(amount).into(),
                    memory: super::units::shown_bytes(memory >> 20 << 20).into(),
                });
            }
        }
        Ok(())
    }
}

/// Returns `name` with hyphens in place of underscores.
pub(crate) const fn hyphens<const N: usize>(name: &str) -> [u8; N] {
    let (name, mut own, mut at) = (name.as_bytes(), [0; N], 0);
    while at < N {
        own[at] = if name[at] == b'_' { b'-' } else { name[at] };
        at += 1;
    }
    own
}

/// Returns the text of bytes that `hyphens` made.
pub(crate) const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a name has letters alone"),
    }
}

/// Declares a configuration: a structure whose fields are options, with the table of their rows, and the methods that set
/// them, but for options that are marked `by hand`.
///
/// A row is `name: [type] Kind = default, "default in words", attributes of OptionInfo;`.
macro_rules! options {
    (
        $(#[$meta:meta])* $config:ident of $subject:literal, methods of $builder:tt;
        $($(#[doc = $doc:literal])+ $name:ident $(by $hand:ident)?: [$($value:tt)+] $kind:ty = $default:expr, $words:literal
            $(, $attribute:ident $given:expr)*;)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $config {
            $($(#[doc = $doc])+ #[doc = ""] #[doc = concat!("Default: ", $words, ".")]
            pub $name: $($value)+,)+
        }

        impl Default for $config {
            fn default() -> Self {
                $config { $($name: $default,)+ }
            }
        }

        impl $crate::config::Config for $config {
            const SUBJECT: &'static str = $subject;

            fn rows() -> &'static [$crate::config::Row<Self>] {
                static ROWS: &[$crate::config::Row<$config>] = &[$($crate::config::Row {
                    info: $crate::config::OptionInfo {
                        name: const {
                            $crate::config::table::text(&const {
                                $crate::config::table::hyphens::<{ stringify!($name).len() }>(stringify!($name))
                            })
                        },
                        lines: &[$($doc),+],
                        shape: <$kind as $crate::config::Kind>::SHAPE,
                        placeholder: <$kind as $crate::config::Kind>::PLACEHOLDER,
                        words: <$kind as $crate::config::Kind>::WORDS,
                        default: $words,
                        $($attribute: $given,)*
                        ..$crate::config::OptionInfo::PLAIN
                    },
                    set: |config, given| {
                        config.$name = <$kind as $crate::config::Kind>::read(given)?;
                        Ok(())
                    },
                    get: |config| <$kind as $crate::config::Kind>::show(&config.$name),
                    amount: |config| <$kind as $crate::config::Kind>::amount(&config.$name),
                    show_amount: <$kind as $crate::config::Kind>::show_amount,
                }),+];
                ROWS
            }
        }

        $crate::config::table::methods! { $builder $([$($hand)?] $name [$($value)+], $words, $($doc)+;)+ }
    };
}
pub(crate) use options;

/// The methods that set options: of a configuration itself, or of a builder that has one as its field `config`.
macro_rules! methods {
    (($builder:ty, config) $($rows:tt)*) => {
        impl $builder {
            $crate::config::table::methods! { @ [config] $($rows)* }
        }
    };
    (($config:ty) $($rows:tt)*) => {
        impl $config {
            $crate::config::table::methods! { @ [] $($rows)* }
        }
    };
    (@ [$($field:ident)?]) => {};
    (@ $place:tt [hand] $name:ident $value:tt, $words:literal, $($doc:literal)+; $($rest:tt)*) => {
        $crate::config::table::methods! { @ $place $($rest)* }
    };
    (@ $place:tt [] $name:ident [Option<$value:tt>], $words:literal, $($doc:literal)+; $($rest:tt)*) => {
        $crate::config::table::method! { $place $name [$value], $words, $($doc)+ }
        $crate::config::table::methods! { @ $place $($rest)* }
    };
    (@ $place:tt [] $name:ident $value:tt, $words:literal, $($doc:literal)+; $($rest:tt)*) => {
        $crate::config::table::method! { $place $name $value, $words, $($doc)+ }
        $crate::config::table::methods! { @ $place $($rest)* }
    };
}
pub(crate) use methods;

/// One of these methods. Literals become numbers, and whatever becomes text, a path or a list is taken.
macro_rules! method {
    ($place:tt $name:ident [String], $($rest:tt)+) => {
        $crate::config::table::method! { @ $place $name [impl Into<String>] [String], $($rest)+ }
    };
    ($place:tt $name:ident [PathBuf], $($rest:tt)+) => {
        $crate::config::table::method! { @ $place $name [impl Into<PathBuf>] [PathBuf], $($rest)+ }
    };
    ($place:tt $name:ident [Vec<$item:ty>], $($rest:tt)+) => {
        $crate::config::table::method! { @ $place $name [impl Into<Vec<$item>>] [Vec<$item>], $($rest)+ }
    };
    ($place:tt $name:ident [$value:ty], $($rest:tt)+) => {
        $crate::config::table::method! { @ $place $name [$value] [$value], $($rest)+ }
    };
    (@ [$($field:ident)?] $name:ident [$argument:ty] [$value:ty], $words:literal, $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[doc = ""]
        #[doc = concat!("Default: ", $words, ".")]
        pub fn $name(mut self, value: $argument) -> Self {
            let value: $value = value.into();
            self$(.$field)?.$name = value.into();
            self
        }
    };
}
pub(crate) use method;
