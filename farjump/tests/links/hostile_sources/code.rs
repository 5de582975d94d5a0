//! Code that differs from its description.

use farjump::core::frame::Plan;
use farjump::{CodeId, RefusalCause};
use farjump_control::Message;
use farjump_fixtures::raw_source::{RawSource, call, call_code, call_id};
use farjump_loader::code_id;

use super::{Fixture, with};
use crate::support::{FOREIGN, id_of, image_of, library};

#[test]
fn code_that_is_not_what_it_says_is_refused_with_the_reason() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let image = image_of(&library("tally"));
    let edit = |at: usize, bytes: &[u8]| with(image.clone(), at, bytes);
    let u32_of = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    // The layout of `core/src/wire/image/mod.rs`; `tally` has an import (farjump_reply) at 32.
    let (span1, site) = (u32_of(8), u32_of(32));
    assert_eq!(image[24..26], 1_u16.to_le_bytes(), "the test needs an image of one import");
    let bad = [
        ("no image at all", b"nonsense".to_vec(), "truncated"),
        ("a longer image", [&image[..], &[0; 16]].concat(), "too long"),
        ("a shorter image", image[..image.len() - 1].to_vec(), "truncated"),
        ("another magic", edit(0, b"ELF"), "start with FJI"),
        ("another version", edit(3, &[3]), "version 3"),
        ("another ABI", edit(6, &[2]), "ABI 2"),
        ("an alignment of 8192", edit(7, &[13]), "2^13"),
        ("an entry behind the code", edit(12, &span1.to_le_bytes()), "entry"),
        ("an entry at the maximum", edit(12, &u32::MAX.to_le_bytes()), "entry"),
        ("a span at the maximum", edit(8, &u32::MAX.to_le_bytes()), "span 1"),
        ("an empty span", edit(8, &[0; 4]), "empty"),
        ("statics at the maximum", edit(20, &u32::MAX.to_le_bytes()), "span 2"),
        ("a site outside the image", edit(32, &(span1 & !7).to_le_bytes()), "outside"),
        ("a site at the maximum", edit(32, &0x7fff_fff8_u32.to_le_bytes()), "outside"),
        ("a site that is not aligned", edit(32, &(site - 4).to_le_bytes()), "aligned"),
        ("more imports than there are", edit(24, &u16::MAX.to_le_bytes()), "truncated"),
        ("a name outside the table", edit(36, &0x7fff_u32.to_le_bytes()), "name"),
    ];
    let mut index = 1;
    let mut refused =
        |fixture: &mut Fixture, name: &str, image: &[u8], id: CodeId, cause, words: &str, what: &str| {
            hostile.send_plan(&Plan { index, ..call_code(name, image, id, hostile.epoch) }, b"");
            fixture.refuses(&mut hostile, cause, words, what);
            hostile.send_plan(&Plan { index, ..call() }, b"");
            fixture.refuses(&mut hostile, cause, words, what);
            index += 1;
        };
    for (what, image, words) in &bad {
        refused(&mut fixture, "tally", image, code_id(image), RefusalCause::BadImage, words, what);
    }
    let (mismatch, wrong) = (RefusalCause::IdMismatch, CodeId([9; 16]));
    refused(&mut fixture, "tally", &image, wrong, mismatch, "09090909", "an id that is not its own");
    let echo = id_of(&library("echo"));
    refused(&mut fixture, "tally", &image, echo, mismatch, "damaged", "the id of code that is held");
    // With the default alignment of code on any machine.
    let [low, high] = FOREIGN.0.to_le_bytes();
    let other = edit(4, &[low, high, 1, 12]);
    let machine = RefusalCause::WrongMachine;
    refused(&mut fixture, "tally", &other, code_id(&other), machine, FOREIGN.triple(), "another machine");
    for name in ["", "..", "../tally", "a/b", "/", "1st", "a b", "a\0", "größe", &"x".repeat(255)] {
        // 255 letters make a name; everything before does not.
        let cause = if name.len() == 255 { RefusalCause::BadImage } else { RefusalCause::BadName };
        let image = if name.len() == 255 { b"nonsense".to_vec() } else { image.clone() };
        refused(&mut fixture, name, &image, code_id(&image), cause, "", &format!("the name {name:?}"));
    }
    let stats = fixture.end();
    assert_eq!(stats.refused(RefusalCause::BadImage), 2 * (bad.len() as u64 + 1));
    assert_eq!(stats.refused(mismatch), 4);
    assert_eq!(stats.refused(machine), 2);
    assert_eq!(stats.refused(RefusalCause::BadName), 18);
    assert_eq!(stats.images_linked, 2, "echo and sequence");
}

#[test]
fn code_sent_on_request_is_checked_like_any_other() {
    let mut fixture = Fixture::new();
    let mut hostile = fixture.hostile();
    let (image, id) = (image_of(&library("tally")), id_of(&library("tally")));
    let ask = |hostile: &mut RawSource, index, name, id: CodeId| {
        let plan = Plan { index, ..call_id(name, id, hostile.epoch) };
        hostile.send_plan(&plan, b"");
        let request = hostile.message();
        assert_eq!(request, Some(Message::NeedCode { index, id: id.0 }));
    };
    ask(&mut hostile, 1, "tally", CodeId([3; 16]));
    hostile.control.send(&Message::Code { id: [3; 16], image: image.clone() }, &[]).unwrap();
    fixture.refuses(&mut hostile, RefusalCause::IdMismatch, "0303", "code of another id");
    ask(&mut hostile, 2, "tally", id);
    hostile.say(&Message::NoCode { id: id.0 });
    fixture.refuses(&mut hostile, RefusalCause::CodeMissing, "did not send it", "code that is not to be had");
    ask(&mut hostile, 3, "../tally", id);
    hostile.send_code(id, &image);
    fixture.refuses(&mut hostile, RefusalCause::BadName, "../tally", "code by a name that is none");
    ask(&mut hostile, 4, "tally", id);
    // Until the code comes, no frame behind this one runs, and other sources do not wait.
    hostile.send_plan(&call(), b"behind");
    fixture.serves_on();
    hostile.send_code(id, &image);
    assert_eq!(hostile.reply(), 1_u64.to_ne_bytes());
    assert_eq!(hostile.reply(), b"behind");
    assert_eq!(fixture.end().refusals(), 3);
}
