//! The command line of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farjump::config::TargetConfig;

use farjump_cli::program::config_arguments::ConfigArguments;
use farjump_cli::program::units::parse_duration;

/// Be a target: run injected functions
///
/// Runs until SIGINT, SIGTERM or SIGHUP. Then it gives the running function time to end (--grace); a second signal does
/// not wait for it. It removes the socket in each case. Injected functions get a `struct farjump_data *`
/// (farjump_ifunc.h) as target_args: FILE, mapped read-only, or no bytes without --data.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Prints one line when it is ready, `ready: ADDRESS (pid N)`, and its statistics on standard error when it ends. If
injected code crashes it, standard error names the code: signal, ifunc, offset in its image, code id.

Injected code may use memcpy, memmove, memset, memcmp, bcmp, strlen, farjump_reply, farjump_forward, farjump_again, farjump_panic,
farjump_private_copy, and the symbols that --export-library and --process-symbols add. The target refuses code that uses another
symbol, and the refusal names it.

Examples:
  farjump serve --listen unix:store.sock --data table.bin
  farjump serve --listen unix:store.sock --export-library ./libkv.so --export-library libm.so.6
  farjump serve --listen unix:store.sock --process-symbols   # printf and all of libc
  farjump serve --listen unix:store.sock --modes local --local libsum.so   # no code comes in
  farjump serve --listen unix:a.sock --destination next=unix:b.sock   # code may forward itself to b
  farjump serve --listen tcp:0.0.0.0:7471 --key-file farm.key   # for other machines
  farjump serve --listen tcp:0.0.0.0:7471 --key-file farm.key --transport verbs-write --device mlx5_0:1   # by RDMA
  farjump serve --listen unix:store.sock --debug --debug-symbols libsum.so   # gdb stops in sum.c: break sum_main
  farjump serve --listen unix:store.sock --local libsum.so --rights observe,call   # no code comes in either
  farjump serve --listen unix:store.sock --bitcode=prefer   # compiles code that comes for this CPU
  farjump serve --listen unix:store.sock --objects 4G --modes local --rights observe,call   # objects, and no code comes in
  farjump serve --listen unix:store.sock --allow-code @reviewed.txt --max-sources 8 --max-source-memory 16M
  farjump serve --config serve.toml --max-payload 64M   # the other options from a file
  farjump serve --config serve.toml --show-config >all.toml

Options: each one but the last four is also a variable, FARJUMP_MAX_PAYLOAD for --max-payload, and a line of the file of --config in TOML,
max-payload = \"64M\". The command line counts before variables, those before the file. Lists are arrays or text with
commas; destination may be a table. The program reads the file once, at its start.

Limits: the target refuses frames over a limit with the reason, and counts them. They cost other sources nothing. Sources
learn --max-frame, --max-image and --max-payload when they connect, and send nothing over these limits. In sizes, K, M and
G are 1024, 1024 K and 1024 M. The file of --allow-code has one id a line; the rest of a line is a comment, and so is a
line that starts with #.

--max-source-memory counts, for each source:
  mailbox  its mailbox and 4 KiB; its large mailbox while it has one, or the longest frame that it may send, over a
           transport that delivers whole frames
  code     code that it brought first, while that is in the store: the image, and its code and statics in the arena
  replies  a reply, also of a destination, that waits for credit at the source or that the program holds; replies that
           are gathered for its calls")]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(super) options: ConfigArguments<TargetConfig>,
    /// A file in TOML with options, of which those of the command line and of the environment take precedence
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print each option with its value and its origin, in the form of --config, and end
    #[arg(long, conflicts_with = "json")]
    pub(super) show_config: bool,
    /// Time for a function that runs when a signal stops the target; then the process ends, and the function
    /// with it
    #[arg(long, value_name = "T", default_value = "5s", value_parser = parse_duration)]
    pub(super) grace: Duration,
    /// Print the line when ready as JSON: {"ready": ADDRESS, "pid": N}, and the one at the end
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_options_that_there_are() {
        use farjump::{CallError, Error, InjectError, RefusalCause};
        use farjump_cli::program::failure::Failure;
        use farjump_cli::program::rust_names;

        fn check<C: Args>(failure: impl Into<Failure>, named: &[&str]) {
            let command = C::augment_args(clap::Command::new("any"));
            let options: Vec<_> = command.get_arguments().filter_map(|option| option.get_long()).collect();
            let text = failure.into().to_string();
            let words = text.split(|letter: char| letter.is_whitespace() || "`()".contains(letter));
            let found: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
            assert_eq!(found, named, "{text}");
            assert!(named.iter().all(|name| options.contains(name)), "{named:?} of {options:?}");
        }

        let error = InjectError::TooLarge { ifunc: "sum".to_owned(), len: 2, max: 1 };
        let named = ["mailbox-size", "max-payload", "max-frame", "max-source-memory"];
        check::<Serve>(Error::from(error), &named);
        for (name, option) in rust_names::OPTIONS {
            let Some(option) = option else { continue };
            let words = option.split(|letter: char| letter.is_whitespace() || letter == '`');
            let named: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
            let (ifunc, text) = ("sum".to_owned(), format!("refused ({name})"));
            let refused = CallError::Refused { ifunc, cause: RefusalCause::Policy, text };
            match option.contains("farjump build") {
                #[cfg(feature = "build")]
                true => check::<farjump_cli::build::Build>(Error::from(refused), &named),
                #[cfg(not(feature = "build"))]
                true => {}
                false => check::<Serve>(Error::from(refused), &named),
            }
        }
        #[cfg(feature = "build")]
        check::<farjump_cli::build::Build>(
            farjump::build::BuildError::Name { name: "9".to_owned() },
            &["name"],
        );
    }
}
