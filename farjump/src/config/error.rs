//! Errors of options: what was wrong, and where it was written.

use std::fmt;
use std::path::PathBuf;

/// The place where the value of an option stands.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Nowhere: the default.
    Default,
    /// A field of the configuration, or a value that a program has set by the option's name.
    Program,
    /// A keyword argument of Python, by its name.
    Keyword(String),
    /// An argument of a command line, as it was written: `--max-payload`.
    Argument(String),
    /// A variable of the environment.
    Variable(String),
    /// A line of a file, from 1.
    File {
        /// The path as given.
        path: PathBuf,
        /// Number of the line.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => out.write_str("the default"),
            Origin::Program => out.write_str("the program"),
            Origin::Keyword(name) | Origin::Argument(name) => out.write_str(name),
            Origin::Variable(name) => write!(out, "the variable {name}"),
            Origin::File { path, line } => write!(out, "{}, line {line}", path.display()),
        }
    }
}

/// An option that cannot be set so. The text names the place, the option, the fault and a remedy.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The place.
    pub origin: Origin,
    /// The name as it was written.
    pub name: String,
    /// The fault.
    pub fault: ConfigFault,
}

/// What is wrong with an option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// No option has this name.
    #[error("is no option of {subject}{}", nearest.map_or(String::new(), |name| format!(": did you mean `{name}`?")))]
    Unknown {
        /// The owner of the options: `a target`.
        subject: &'static str,
        /// The option whose name is nearest, if one is near.
        nearest: Option<&'static str>,
    },
    /// The option had this name before.
    #[error("is called `{now}` now")]
    Renamed {
        /// Its name.
        now: &'static str,
    },
    /// The option has a value already.
    #[error("is given twice: give it once")]
    Twice,
    /// The text is no value of the option's type.
    #[error("{0}")]
    Malformed(String),
    /// The value is outside of the range.
    #[error("{value} is out of range: give {least} {}", most.as_ref().map_or("or more".to_owned(), |most| format!("to {most}")))]
    Range {
        /// The value.
        value: Box<str>,
        /// The smallest value.
        least: Box<str>,
        /// The largest value, if there is one.
        most: Option<Box<str>>,
    },
    /// The value exceeds the memory of this machine, as far as the process may use it.
    #[error("{value} is more than the {memory} of memory that this process may use: give less")]
    Memory {
        /// The value.
        value: Box<str>,
        /// The memory.
        memory: Box<str>,
    },
    /// The option has no effect without another one.
    #[error("has no effect without `{needed}`: give that too, or leave this out")]
    Needs {
        /// The other option.
        needed: &'static str,
    },
    /// This build lacks the part that the option is for.
    #[error("needs a build with the feature `{feature}`")]
    Feature {
        /// The feature.
        feature: &'static str,
    },
}

impl ConfigError {
    /// The error of the option that was written as `name` at `origin`.
    pub fn new(origin: Origin, name: impl Into<String>, fault: ConfigFault) -> Self {
        ConfigError { origin, name: name.into(), fault }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default | Origin::Program => write!(out, "`{}`", self.name)?,
            Origin::File { .. } => write!(out, "{}: `{}`", self.origin, self.name)?,
            origin => write!(out, "{origin}")?,
        }
        let sentence = matches!(
            self.fault,
            ConfigFault::Malformed(_) | ConfigFault::Range { .. } | ConfigFault::Memory { .. }
        );
        let names_option = matches!(
            self.fault,
            ConfigFault::Unknown { .. } | ConfigFault::Renamed { .. } | ConfigFault::Needs { .. }
        );
        let mut fault = self.fault.to_string();
        if names_option && matches!(self.origin, Origin::Keyword(_)) {
            // Python writes names with underscores, and these texts have no other hyphens.
            fault = fault.replace('-', "_");
        }
        write!(out, "{}{fault}", if sentence { ": " } else { " " })
    }
}

impl fmt::Debug for ConfigError {
    /// The text, for a `main` that returns an error; `{:#?}` prints the structure.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !out.alternate() {
            return fmt::Display::fmt(self, out);
        }
        let ConfigError { origin, name, fault } = self;
        out.debug_struct("ConfigError")
            .field("origin", origin)
            .field("name", name)
            .field("fault", fault)
            .finish()
    }
}

impl std::error::Error for ConfigError {}
