//! The database finally holds the contents of the WAV files.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::{fs, iter};

use super::fixture::{Fixture, Transport, real, said, word};
use super::wav::{Chunk, Sound, form, write};
use crate::programs::{Linkage, Process};

/// Files with all features of WAV files, each with its sound.
fn made(fixture: &Fixture) -> Vec<(PathBuf, Sound)> {
    let mut state = 1_u32;
    let mut noise = |len: usize| -> Vec<u8> {
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((state >> 24) as u8)
        };
        iter::from_fn(next).take(len).collect()
    };
    let words =
        |samples: &[i16]| -> Vec<u8> { samples.iter().flat_map(|sample| sample.to_le_bytes()).collect() };
    let list = Chunk(*b"LIST", b"INFOodd".to_vec());
    let mut files = Vec::new();
    let mut add = |name: &str, sound: Sound, bytes: Vec<u8>| {
        files.push((write(&fixture.path(""), name, &bytes), sound));
    };

    let half = Sound::new(1, 16, words(&[16384, -16384].repeat(5000)));
    add("half", half.clone(), half.plain());
    let stereo = Sound::new(2, 16, noise(4 * 9001));
    add("stereo noise", stereo.clone(), stereo.plain());
    let edges = Sound::new(1, 16, words(&[i16::MIN, i16::MAX, 0, -1, 1].repeat(999)));
    add("edges", edges.clone(), edges.plain());
    let bytes = Sound::new(2, 8, noise(2 * 4096));
    add("bytes", bytes.clone(), bytes.plain());
    let single = Sound::new(1, 8, vec![255]);
    // An odd number of bytes, padded.
    add("single", single.clone(), single.plain());
    let odd = Sound::new(1, 8, noise(4097));
    add("odd chunks", odd.clone(), form(&[list.clone(), odd.format(), odd.samples(), list.clone()]));
    // Not padded at the end of the file, as many programs write it.
    let mut unpadded = form(&[odd.format(), odd.samples()]);
    let size = unpadded.len() as u32 - 9;
    unpadded[4..8].copy_from_slice(&size.to_le_bytes());
    unpadded.pop();
    add("unpadded", odd.clone(), unpadded);
    let mut long_format = half.format();
    long_format.1[..2].copy_from_slice(&0xfffe_u16.to_le_bytes());
    // The length of the rest, the used bits, the speaker's position, and PCM as the format.
    long_format
        .1
        .extend([22, 0, 16, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71]);
    add("extensible", half.clone(), form(&[long_format, half.samples()]));
    let mut followed = half.plain();
    followed.extend(b"what is behind the form is none of it");
    add("followed", half.clone(), followed);
    files
}

/// Returns the sound of a row, by SQLite's own program.
fn kept(fixture: &Fixture, name: &str) -> Sound {
    let row = fixture
        .query(&format!("SELECT rate, channels, bits, hex(pcm) FROM recordings WHERE name = '{name}'"));
    let fields: Vec<_> = row.split('|').collect();
    let [rate, channels, bits, digits] = fields[..] else { panic!("`{name}` is not one row: {row}") };
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let pcm = (0..digits.len()).step_by(2).map(byte).collect();
    let [rate, channels, bits] = [rate, channels, bits].map(|number| number.parse::<u32>().unwrap());
    Sound { rate, channels: channels as u16, bits: bits as u16, pcm }
}

/// Checks that the database has the files unchanged that a source brings, and those that the target has read itself.
pub(crate) fn are_kept(linkage: Linkage, transport: Transport) {
    if !transport.is_open() {
        return;
    }
    let Some(fixture) = Fixture::new(linkage) else { return };
    let mut files = made(&fixture);
    for name in ["Front_Center", "Noise"] {
        files.extend(real(name).map(|path| (path.clone(), Sound::of_plain_file(&path))));
    }
    let (own, brought) = files.split_first().unwrap();
    let target = fixture.target(transport, &[word(&own.0)]);
    let paths: Vec<_> = brought.iter().map(|(path, _)| word(path)).collect();
    let said = fixture.bring(transport, &paths).unwrap();
    for name in ["half", "extensible"] {
        // 10,000 samples of half the height, up and down.
        let level = format!("{name:20}  22050        1   16    0.454   -6.0 dB   -6.0 dB");
        assert!(said.iter().any(|line| line.ends_with(&level)), "`{level}` is not in {said:#?}");
    }
    target.stop();
    for (path, sound) in &files {
        let name = word(&path.file_stem().unwrap()).to_owned();
        assert!(kept(&fixture, &name) == *sound, "`{name}` is another sound, over {transport:?}");
    }
    assert_eq!(fixture.query("SELECT count(*) FROM recordings"), files.len().to_string());
}

#[test]
fn over_puts_each_wav_sample_is_stored_unchanged() {
    are_kept(Linkage::Shared, Transport::PUT);
}

#[test]
fn over_messages_each_wav_sample_is_stored_unchanged() {
    are_kept(Linkage::Shared, Transport::AM);
}

#[test]
fn over_shared_memory_each_wav_sample_is_stored_unchanged() {
    are_kept(Linkage::Shared, Transport::SHM);
}

#[test]
fn a_source_over_tcp_connects_only_with_the_key() {
    if !Transport::TCP.is_open() {
        return;
    }
    let Some(fixture) = Fixture::new(Linkage::Shared) else { return };
    let key = fixture.path("farm.key");
    fs::write(&key, "5b".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let args = ["--key-file", "farm.key", "tcp:127.0.0.1:0", "recordings.db"];
    let target = Process::start(&mut fixture.program("target", Transport::TCP, &args));
    let ready = target.line();
    let address = ready.strip_prefix("ready: ").unwrap();
    let file = made(&fixture).swap_remove(0).0;
    let source = |args: &[&str]| said(&mut fixture.program("source", Transport::TCP, args));
    let without = source(&[address, word(&file)]).unwrap_err();
    assert!(without.contains("key"), "{without}");
    let said = source(&["--key-file", "farm.key", address, word(&file)]).unwrap();
    assert!(said[0].starts_with("half: 10000 samples are row 1; their 20000 bytes went as "), "{said:?}");
    target.stop();
    assert_eq!(fixture.query("SELECT name FROM recordings"), "half");
}
