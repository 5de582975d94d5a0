//! The module's commands.

use std::time::Instant;

use crate::api::{self, Args, Command, Context, KeysOf, Whereabouts, key_flags};
use crate::code::Kept;
use crate::code_key::slot_of_key;
use crate::functions::{self, Bytes, CommandInput, Terms, Value};
use crate::hooks::RunLinks;
use crate::host::{self, Host};
use crate::options::MayLoad;
use crate::own_calls;
use crate::watcher::Watcher;

/// Adds all commands to the server. Returns whether the server took them.
pub(crate) fn register(context: &Context<'_>) -> bool {
    api::register::<RunLinks>(context)
        & api::register::<Load>(context)
        & api::register::<Call>(context)
        & api::register::<CallReadOnly>(context)
        & api::register::<List>(context)
        & api::register::<Delete>(context)
        & api::register::<Stats>(context)
}

/// Returns the module. If it has no target, replies to the command and returns `None`.
fn target_of(context: &Context<'_>) -> Option<std::rc::Rc<Host>> {
    let host = host::get();
    let refusal = match &host {
        Some(host) => host.refusal(),
        None => Some("NOTARGET the module is being unloaded".to_owned()),
    };
    match refusal {
        Some(refusal) => {
            context.reply_error(&refusal);
            None
        }
        None => host,
    }
}

/// Loads code.
struct Load;

impl Command for Load {
    const NAME: &'static std::ffi::CStr = c"FJ.LOAD";
    const FLAGS: &'static std::ffi::CStr = c"write deny-oom admin";
    const SUMMARY: &'static std::ffi::CStr = c"Loads an ifunc library under a name.";
    const ARITY: i32 = 3;

    fn run(context: &Context<'_>, args: &Args<'_>) {
        let Some(host) = target_of(context) else { return };
        let may_load = host.options().map_or(MayLoad::No, |options| options.load);
        if let Err(refusal) = check_load(may_load, || context.whereabouts()) {
            return context.reply_error(&refusal);
        }
        let cpu = match &*host.target.borrow() {
            Some(target) => target.cpu().clone(),
            None => return context.reply_error("NOTARGET the target has ended"),
        };
        match host.code.borrow_mut().load(context, args.get(1), args.get(2), &cpu) {
            Ok((id, kept)) => {
                let kept = match kept {
                    Kept::Key(key) => format!("kept in the key {}", String::from_utf8_lossy(&key)),
                    Kept::Memory => {
                        "in memory until the server ends: to keep it, load the module with code-key FILE"
                            .to_owned()
                    }
                    Kept::Node => {
                        "in memory until the server ends: this node has no slot, or the cluster is down"
                            .to_owned()
                    }
                };
                context.reply_array(2);
                context.reply_bytes(id.to_string().as_bytes());
                context.reply_bytes(kept.as_bytes());
            }
            Err(error) => context.reply_error(&error),
        }
    }
}

/// Checks that a client may load code.
///
/// # Errors
/// The reason, and a remedy that is never the present setting.
fn check_load(may_load: MayLoad, whereabouts: impl FnOnce() -> Whereabouts) -> Result<(), String> {
    let why = match may_load {
        MayLoad::Yes => return Ok(()),
        MayLoad::No => {
            return Err("FJ.LOAD is not allowed, as the module was loaded with `load no`: load it with `load local` for clients of \
                        this machine, or with `load yes` for all"
                .to_owned());
        }
        MayLoad::Local => match whereabouts() {
            Whereabouts::Here => return Ok(()),
            Whereabouts::Elsewhere(address) => format!("this client has come from {address}"),
            Whereabouts::NoClient => {
                "a script, another module, a primary or a file runs the command, and no client".to_owned()
            }
            Whereabouts::Unknown(why) => format!("the server does not say where this client is: {why}"),
        },
    };
    Err(format!(
        "FJ.LOAD is for clients of this machine, as the module was loaded with `load local`, and {why}: run FJ.LOAD as a command of a \
         client that has come by the Unix socket or a loopback address, or load the module with `load yes`"
    ))
}

/// Calls loaded code.
struct Call;

impl Command for Call {
    const NAME: &'static std::ffi::CStr = c"FJ.CALL";
    const FLAGS: &'static std::ffi::CStr = c"write deny-oom getkeys-api";
    const SUMMARY: &'static std::ffi::CStr = c"Calls loaded code.";
    const ARITY: i32 = -3;
    const KEYS: KeysOf = KeysOf::Counted(key_flags::RW | key_flags::ACCESS | key_flags::UPDATE);

    fn run(context: &Context<'_>, args: &Args<'_>) {
        call(context, args, true);
    }
}

/// Calls loaded code that only reads.
struct CallReadOnly;

impl Command for CallReadOnly {
    const NAME: &'static std::ffi::CStr = c"FJ.CALL_RO";
    const FLAGS: &'static std::ffi::CStr = c"readonly getkeys-api";
    const SUMMARY: &'static std::ffi::CStr = c"Calls loaded code, which may only read.";
    const ARITY: i32 = -3;
    const KEYS: KeysOf = KeysOf::Counted(key_flags::RO | key_flags::ACCESS);

    fn run(context: &Context<'_>, args: &Args<'_>) {
        call(context, args, false);
    }
}

fn call(context: &Context<'_>, args: &Args<'_>, may_write: bool) {
    let Some(host) = target_of(context) else { return };
    let count = std::str::from_utf8(args.get(2)).ok().and_then(|count| count.parse::<usize>().ok());
    let Some(count) = count.filter(|count| *count <= args.len().saturating_sub(3)) else {
        return context.reply_error(
            "the number of keys is no number, or larger than what follows: write FJ.CALL name numkeys key... arg...",
        );
    };
    match call_with(&host, context, args, count, may_write) {
        Ok((reply, true)) => match functions::values(&reply) {
            Ok(values) => values.into_iter().for_each(|value| reply_value(context, value)),
            Err(error) => context.reply_error(&error),
        },
        Ok((reply, false)) if reply.is_empty() => context.reply_null(),
        Ok((reply, false)) => context.reply_bytes(&reply),
        Err(error) => context.reply_error(&error),
    }
}

/// Replies a value of a function's answer.
fn reply_value(context: &Context<'_>, value: Value<'_>) {
    match value {
        Value::Integer(number) => context.reply_integer(number),
        Value::Double(number) => context.reply_double(number),
        Value::String(bytes) => context.reply_bytes(bytes),
        Value::Array(len) => context.reply_array(len),
    }
}

/// Returns the function's reply, and whether it is an answer of values.
fn call_with(
    host: &Host,
    context: &Context<'_>,
    args: &Args<'_>,
    keys: usize,
    may_write: bool,
) -> Result<(Vec<u8>, bool), String> {
    let inside = || "FJ.CALL inside a call would wait for itself: make one call of both".to_owned();
    let mut target = host.target.try_borrow_mut().map_err(|_| inside())?;
    let target = target.as_mut().ok_or("NOTARGET the target has ended")?;
    let mut code = host.code.try_borrow_mut().map_err(|_| inside())?;
    let allowed = target.config().allow_code.as_deref().unwrap_or_default();
    let found = code.find(context, args.get(1), target.cpu(), allowed)?;
    let Some(loaded) = found else {
        let name = String::from_utf8_lossy(args.get(1)).into_owned();
        return Err(format!("NOCODE no code is loaded under {name:?}: load it by FJ.LOAD"));
    };
    let user = context.user().ok_or(
        "this call has no user, as another module, a primary or a file makes it: have the module call with the flag C, for the user of its client",
    )?;
    let slot = (keys != 0).then(|| slot_of_key(args.get(3)));
    let terms = Terms { may_write, slot, database: context.database() };
    let principal = host.principal(user.bytes(), terms);
    let input = CommandInput {
        keys: args.range(3, 3 + keys).map(Bytes::of).collect(),
        args: args.range(3 + keys, args.len()).map(Bytes::of).collect(),
        is_command: true,
    };
    let payload = args.get(3 + keys);
    let start = Instant::now();
    let run = host.watcher.get().map(Watcher::run);
    let replied = functions::during(context, input, || {
        let reply = own_calls::call(target, &principal, &loaded.library, payload)?;
        Ok((reply, functions::have_replied_values()))
    });
    drop(run);
    let figures = &mut loaded.figures;
    figures.calls += 1;
    let name = loaded.library.name();
    figures.microseconds += host.note_time(start, name, || format!("{name}, by FJ.CALL"));
    figures.failed += u64::from(!matches!(replied, Some(Ok(_))));
    replied.unwrap_or_else(|| Err(inside()))
}

/// Lists loaded code.
struct List;

impl Command for List {
    const NAME: &'static std::ffi::CStr = c"FJ.LIST";
    const FLAGS: &'static std::ffi::CStr = c"readonly";
    const SUMMARY: &'static std::ffi::CStr = c"Lists loaded code.";
    const ARITY: i32 = 1;

    fn run(context: &Context<'_>, _: &Args<'_>) {
        let Some(host) = target_of(context) else { return };
        let names = host.code.borrow_mut().names(context);
        context.reply_array(names.len());
        names.iter().for_each(|name| context.reply_bytes(name));
    }
}

/// Deletes loaded code.
struct Delete;

impl Command for Delete {
    const NAME: &'static std::ffi::CStr = c"FJ.DELETE";
    const FLAGS: &'static std::ffi::CStr = c"write admin";
    const SUMMARY: &'static std::ffi::CStr = c"Deletes loaded code.";
    const ARITY: i32 = 2;

    fn run(context: &Context<'_>, args: &Args<'_>) {
        let Some(host) = target_of(context) else { return };
        let deleted = host.code.borrow_mut().delete(context, args.get(1));
        match deleted {
            Ok(deleted) => context.reply_integer(i64::from(deleted)),
            Err(error) => context.reply_error(&error),
        }
    }
}

/// Figures of loaded code.
struct Stats;

impl Command for Stats {
    const NAME: &'static std::ffi::CStr = c"FJ.STATS";
    const FLAGS: &'static std::ffi::CStr = c"readonly";
    const SUMMARY: &'static std::ffi::CStr = c"Calls, failed calls and microseconds of loaded code.";
    const ARITY: i32 = 1;

    fn run(context: &Context<'_>, _: &Args<'_>) {
        let Some(host) = target_of(context) else { return };
        let code = host.code.borrow();
        context.reply_array(code.len());
        for (name, loaded) in code.iter() {
            context.reply_array(4);
            context.reply_bytes(name);
            context.reply_integer(loaded.figures.calls.cast_signed());
            context.reply_integer(loaded.figures.failed.cast_signed());
            context.reply_integer(loaded.figures.microseconds.cast_signed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_load_names_the_reason_and_suggests_only_other_settings() {
        let refusal = |may_load, whereabouts: Whereabouts| check_load(may_load, || whereabouts).unwrap_err();
        assert_eq!(check_load(MayLoad::Yes, || Whereabouts::NoClient), Ok(()));
        assert_eq!(check_load(MayLoad::Local, || Whereabouts::Here), Ok(()));
        let no = refusal(MayLoad::No, Whereabouts::Here);
        assert!(no.contains("with `load no`: load it with `load local` for clients"), "{no}");
        for (whereabouts, why) in [
            (Whereabouts::Elsewhere("10.0.0.7:50000".to_owned()), "this client has come from 10.0.0.7:50000"),
            (Whereabouts::NoClient, "a script, another module, a primary or a file runs the command"),
            (
                Whereabouts::Unknown("ERR unknown command".to_owned()),
                "does not say where this client is: ERR",
            ),
        ] {
            let text = refusal(MayLoad::Local, whereabouts);
            assert!(text.contains(why), "{text}");
            assert_eq!(text.matches("`load local`").count(), 1, "{text}");
            assert!(text.ends_with("or load the module with `load yes`"), "{text}");
        }
    }
}
