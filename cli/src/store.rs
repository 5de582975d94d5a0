//! `store`: shows the code and the objects of a running target, and drops code.

use clap::Args;
use farjump::admin::{Dropped, ObjectListing, StoreListing, StoredImage};
use serde_json::{Value, json};

use crate::objects::listing;
use crate::report::{self, AdminOptions};
use farjump_cli::program::failure::Failure;
use farjump_cli::program::output;
use farjump_cli::program::units::{counted, microseconds, show_ago, show_count, show_duration};

/// Show the code and the objects of a target, or drop code
///
/// Lists each image by its code id: the family of its library's images, its platform, the name under which it first
/// came, its bytes, the number and time of its calls, the time of the last call, and the program that brought it. Only
/// some of the short calls are timed; that time is an estimate. Objects are listed where the target has a store of them
/// (serve --objects).
#[derive(Args, Debug)]
#[command(after_long_help = "\
The most recently used image comes first, and so does the most recently used object. An object has its number, length and
type; its claims, which are the readers that use it now; its counted references, if they are counted; the time left of its
lease; and its state: `present`, `reserved` (it has no contents yet), `unfinished` (they are being written), `spilled` (it
lies in a file) or `evicted` (it is gone, and its last readers still use it).

Dropping requires a right (serve --rights). Dropped code loses its statics. No call is lost: a source that calls the code
again sends it again. Functions of the target itself (serve --local) stay.

The target responds when the function that it is running has returned.

Examples:
  farjump store --to unix:store.sock
  farjump store --to unix:store.sock --drop edc1
  farjump store --to unix:store.sock --drop-all
  farjump store --to unix:store.sock --json | jq '.images[] | select(.calls == 0) | .id'
  farjump store --to unix:store.sock --json | jq .objects.used_bytes

docs/reference/json.md lists the output of --json.")]
pub(crate) struct Store {
    #[command(flatten)]
    admin: AdminOptions,
    /// Drop the code with this id. 4 digits or more are enough if no other id begins with them
    #[arg(long, value_name = "ID", value_parser = parse_beginning, conflicts_with = "drop_all")]
    pub(crate) drop: Option<Beginning>,
    /// Drop all code
    #[arg(long)]
    pub(crate) drop_all: bool,
}

pub(crate) fn run(arguments: &Store) -> Result<(), Failure> {
    let admin = arguments.admin.admin()?;
    if arguments.drop_all {
        return show_dropped(arguments, &admin.drop_all()?);
    }
    let Some(beginning) = &arguments.drop else {
        return show(arguments, &admin.store()?, listing::of(&admin)?.as_ref());
    };
    let listing = admin.store()?;
    let image = find(&listing, &beginning.0, &arguments.admin.to)?;
    let (id, name) = (image.id, &image.name);
    let dropped = admin.drop_code(&id)?;
    if dropped.kept != 0 {
        let text = format!(
            "`{name}` ({id}) is a function of the target's own (serve --local), which is not dropped while it serves"
        );
        return Err(Failure::new(text));
    }
    show_dropped(arguments, &dropped)
}

/// The beginning of a code id: 4 to 32 hexadecimal digits, in small letters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Beginning(String);

/// Reads the beginning of a code id.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_beginning(text: &str) -> Result<Beginning, String> {
    if !(4..=32).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!(
            "`{text}` is no code id: write its first 4 hexadecimal digits or more, as `farjump store` shows them"
        ));
    }
    Ok(Beginning(text.to_ascii_lowercase()))
}

/// Returns the one image whose id begins with `beginning`.
fn find<'a>(listing: &'a StoreListing, beginning: &str, target: &str) -> Result<&'a StoredImage, Failure> {
    let meant = |image: &&StoredImage| image.id.to_string().starts_with(beginning);
    let found: Vec<_> = listing.images.iter().filter(meant).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(Failure::new(format!(
            "{target} has no code whose id begins with {beginning}: `farjump store --to {target}` lists its code"
        ))),
        _ => {
            let some = found.iter().take(8).map(|image| format!("{} ({})", image.id, image.name));
            let some = some.collect::<Vec<_>>().join(", ");
            let more = if found.len() > 8 { ", …" } else { "" };
            Err(Failure::new(format!(
                "the ids of {} images begin with {beginning}: {some}{more}; write more digits of the one that you mean",
                found.len()
            )))
        }
    }
}

fn show_dropped(arguments: &Store, dropped: &Dropped) -> Result<(), Failure> {
    let as_json = || json!({ "dropped": dropped.images, "kept": dropped.kept });
    report::print(arguments.admin.json, as_json, || {
        let kept = match dropped.kept {
            0 => String::new(),
            kept => format!("; kept {} of the target's own (serve --local)", show_count(kept)),
        };
        format!("dropped {}{kept}\n", counted(dropped.images, "image"))
    })
}

fn show(arguments: &Store, listing: &StoreListing, objects: Option<&ObjectListing>) -> Result<(), Failure> {
    let for_programs = || {
        let list: Vec<_> = listing.images.iter().map(as_json).collect();
        json!({ "images": list, "left_out": listing.left_out, "objects": objects.map(listing::as_json) })
    };
    report::print(arguments.admin.json, for_programs, || {
        let mut rows = vec![
            ["code id", "family", "for", "name", "bytes", "calls", "time", "last use", "brought by"]
                .map(String::from),
        ];
        rows.extend(listing.images.iter().map(as_row));
        let mut text = output::table(&rows);
        if listing.left_out != 0 {
            text += &format!("and {} that were used longer ago\n", show_count(listing.left_out));
        }
        if let Some(objects) = objects {
            text += &format!("\n{}", listing::as_text(objects));
        }
        text
    })
}

fn as_row(image: &StoredImage) -> [String; 9] {
    // A triple is its architecture and four words that are always the same.
    let platform = image.platform.replace("-unknown-linux-gnu", "");
    [
        image.id.to_string(),
        image.family.to_string()[..8].to_owned() + "…",
        platform,
        image.name.clone(),
        show_count(image.bytes as u64),
        show_count(image.calls),
        show_duration(image.time),
        show_ago(image.last_use),
        image.source.clone(),
    ]
}

fn as_json(image: &StoredImage) -> Value {
    json!({
        "id": image.id.to_string(),
        "family": image.family.to_string(),
        "platform": image.platform,
        "name": image.name,
        "bytes": image.bytes,
        "calls": image.calls,
        "time_us": microseconds(image.time),
        "link_us": microseconds(image.link_time),
        "last_use_us": microseconds(image.last_use),
        "source": image.source,
        "own": image.own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use farjump::CodeId;

    fn listing(ids: &[u128]) -> StoreListing {
        let image = |id: &u128| StoredImage::new(CodeId(id.to_be_bytes()), "f", 1, "p");
        StoreListing { images: ids.iter().map(image).collect(), left_out: 0 }
    }

    #[test]
    fn the_beginning_of_an_id_names_the_one_image_that_it_fits() {
        let held = listing(&[0x1234_0000 << 96, 0x1234_5678 << 96, 0xabcd_0000 << 96]);
        let found = |beginning| find(&held, beginning, "unix:t").map(|image| image.id.0[3]);
        assert_eq!(found("12345").expect("it is unique"), 0x78);
        assert_eq!(found("abcd").expect("it is unique"), 0);
        let ambiguous = found("1234").unwrap_err().to_string();
        assert!(
            ambiguous.contains("2 images begin with 1234") && ambiguous.contains("12345678"),
            "{ambiguous}"
        );
        let absent = found("ffff").unwrap_err().to_string();
        assert!(absent.contains("has no code whose id begins with ffff"), "{absent}");
    }

    #[test]
    fn an_id_prefix_has_4_to_32_hexadecimal_digits() {
        assert_eq!(parse_beginning("AbC1"), Ok(Beginning("abc1".into())));
        assert!(parse_beginning(&"a".repeat(32)).is_ok());
        for wrong in ["", "abc", "abcg", "+abc", &"a".repeat(33), "libgrep.so"] {
            assert!(parse_beginning(wrong).is_err(), "{wrong}");
        }
    }
}
