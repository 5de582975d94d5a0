//! Recordings that the database refuses: the reply says why, and the target continues.

use std::fs;
use std::path::Path;

use farjump::{Library, Link};

use super::fixture::{Fixture, Transport, said, word};
use super::wav::{Chunk, Sound, form, write};
use crate::common::package;
use crate::programs::{Linkage, PATIENCE};

/// A second of silence.
fn silence() -> Sound {
    Sound::new(1, 8, vec![128; 22050])
}

/// Checks that the target still takes recordings, and then has `rows` of them.
fn check_serving(fixture: &Fixture, transport: Transport, rows: usize) {
    let path = write(&fixture.path(""), "later", &silence().plain());
    let said = fixture.bring(transport, &[word(&path)]).unwrap();
    assert!(said[0].starts_with("later: 22050 samples are row "), "{said:?}");
    assert_eq!(fixture.query("SELECT count(*) FROM recordings"), rows.to_string());
}

/// Makes a fixture and its target, over UCX's puts, or returns if there can be none.
macro_rules! target_or_return {
    ($fixture:ident, $target:ident) => {
        if !Transport::PUT.is_open() {
            return;
        }
        let Some($fixture) = Fixture::new(Linkage::Shared) else { return };
        let $target = $fixture.target(Transport::PUT, &[]);
    };
}

#[test]
fn a_duplicate_recording_is_refused_with_the_message_from_sqlite() {
    target_or_return!(fixture, target);
    let file = write(&fixture.path(""), "twice", &silence().plain());
    fixture.bring(Transport::PUT, &[word(&file)]).unwrap();
    let error = fixture.bring(Transport::PUT, &[word(&file)]).unwrap_err();
    assert_eq!(error, format!("source: {}: UNIQUE constraint failed: recordings.name", file.display()));
    check_serving(&fixture, Transport::PUT, 2);
    target.stop();
}

#[test]
fn a_codec_that_calls_what_the_target_does_not_export_never_runs() {
    target_or_return!(fixture, target);
    let file = write(&fixture.path(""), "once", &silence().plain());
    fixture.bring(Transport::PUT, &[word(&file)]).unwrap();
    let codec = fixture.path("libcodec.so");
    let own = fs::read(&codec).unwrap();
    let other = fixture.path("codec.c");
    fs::write(
        &other,
        "#include <farjump_ifunc.h>\n\
         #include <sqlite3.h>\n\
         FARJUMP_COPY_ARGS(codec)\n\
         FARJUMP_IFUNC void codec_main(void *payload, size_t payload_size, void *target_args)\n\
         {\n\
             (void)payload, (void)payload_size;\n\
             sqlite3_exec(target_args, \"DROP TABLE recordings\", NULL, NULL, NULL);\n\
         }\n",
    )
    .unwrap();
    fixture.build_library(&other, "libcodec.so");
    let error = fixture.bring(Transport::PUT, &[word(&file)]).unwrap_err();
    let why = "the target refused `codec`: it exports no `sqlite3_exec` (it offers ";
    assert!(error.contains(why) && error.contains("sqlite3_step"), "{error}");
    fs::write(codec, own).unwrap();
    check_serving(&fixture, Transport::PUT, 2);
    target.stop();
}

/// Returns the codec with a payload routine that sends payloads as they are.
fn bare_codec(fixture: &Fixture) -> Library {
    let source = fixture.path("bare.c");
    let own = package().join("examples/recordings/codec.c");
    let text = format!(
        "#define codec_payload_get_max_size own_get_max_size\n\
         #define codec_payload_init_shrink own_init_shrink\n\
         #include \"{}\"\n\
         #undef codec_payload_get_max_size\n\
         #undef codec_payload_init_shrink\n\
         FARJUMP_COPY_ARGS(codec)\n",
        own.display()
    );
    fs::write(&source, text).unwrap();
    fs::create_dir(fixture.path("bare")).unwrap();
    fixture.build_library(&source, "bare/libcodec.so");
    Library::open(fixture.path("bare/libcodec.so")).unwrap()
}

/// Returns the head of a payload, and bits.
fn payload(name: &[u8], rate: u32, length: u32, channels: u16, bits: u16, code: &str) -> Vec<u8> {
    let mut payload = name.to_vec();
    payload.resize(64, 0);
    payload.extend(rate.to_ne_bytes());
    payload.extend(length.to_ne_bytes());
    payload.extend(channels.to_ne_bytes());
    payload.extend(bits.to_ne_bytes());
    let code: Vec<_> = code.bytes().filter(|digit| *digit != b' ').collect();
    for byte in code.chunks(8) {
        let ones = byte.iter().enumerate().filter(|(_, digit)| **digit == b'1');
        payload.push(ones.map(|(bit, _)| 0x80 >> bit).sum());
    }
    payload
}

/// Returns the codec's reply: the row and the number of samples, or the error.
fn codec_reply(link: &mut Link, codec: &Library, payload: &[u8]) -> Result<(i64, u64), String> {
    let reply = link.inject(codec, payload).unwrap().wait(PATIENCE).unwrap().into_vec();
    let (row, rest) = reply.split_first_chunk().unwrap();
    let (samples, why) = rest.split_first_chunk().unwrap();
    match i64::from_ne_bytes(*row) {
        0 => Err(String::from_utf8(why.to_vec()).unwrap()),
        row => Ok((row, u64::from_ne_bytes(*samples))),
    }
}

#[test]
fn the_reply_to_a_damaged_payload_names_its_fault() {
    target_or_return!(fixture, target);
    let codec = bare_codec(&fixture);
    let link = Link::builder(&fixture.address()).transport(Transport::PUT.0).connect_timeout(PATIENCE);
    let mut link = link.connect().unwrap();
    // Predicted as 0, with a parameter of 16: the value itself, behind a zero. 10 stands for 5.
    let five = "00 10000 0 0000000000001010";
    let whole = payload(b"five", 1, 1, 1, 16, five);
    let mut overlong = whole.clone();
    overlong.push(0);
    for (payload, why) in [
        (vec![], "it is shorter than its head"),
        (whole[..75].to_vec(), "it is shorter than its head"),
        (payload(b"a", 1, 1, 3, 16, five), "its samples are none of 8 or 16 bits on 1 or 2 channels"),
        (payload(b"a", 1, 1, 0, 16, five), "its samples are none of 8 or 16 bits on 1 or 2 channels"),
        (payload(b"a", 1, 1, 1, 12, five), "its samples are none of 8 or 16 bits on 1 or 2 channels"),
        (payload(b"", 1, 1, 1, 16, five), "it has no name"),
        (payload(&[b'a'; 64], 1, 1, 1, 16, five), "it has no name"),
        (payload(b"a", 1, 0, 1, 16, five), "it has not the bits for the samples that it says it has"),
        (payload(b"a", 1, 25, 1, 16, five), "it has not the bits for the samples that it says it has"),
        (payload(b"a", 1, u32::MAX, 2, 16, five), "it has not the bits for the samples that it says it has"),
        (payload(b"a", 1, 2, 1, 16, five), "it ends before its samples do"),
        (overlong, "it goes on behind its samples"),
        (payload(b"a", 1, 1, 1, 16, "00 10001 0"), "there is no such parameter of the Rice code"),
        (
            payload(b"a", 1, 1, 1, 16, "00 10000 11111111 11111111 0"),
            "a sample is too far from what was predicted",
        ),
        (payload(b"a", 1, 1, 1, 8, "00 01000 10 00000000"), "a sample has too many bits"),
        (payload(b"a", 1, 1, 1, 16, "00 10000 10 0000000000000001"), "a sample has too many bits"),
    ] {
        let reported = codec_reply(&mut link, &codec, &payload).unwrap_err();
        assert_eq!(reported, format!("the compressed recording is damaged: {why}"));
    }
    let no_rate = codec_reply(&mut link, &codec, &payload(b"a", 0, 1, 1, 16, five)).unwrap_err();
    assert_eq!(no_rate, "CHECK constraint failed: rate > 0");

    assert_eq!(codec_reply(&mut link, &codec, &whole), Ok((1, 1)));
    assert_eq!(fixture.query("SELECT name, hex(pcm) FROM recordings"), "five|0500");
    drop(link);
    check_serving(&fixture, Transport::PUT, 2);
    target.stop();
}

#[test]
fn a_file_other_than_pcm_wav_is_refused_with_the_cause() {
    let Some(fixture) = Fixture::new(Linkage::Shared) else { return };
    let sound = Sound::new(2, 16, vec![7; 400]);
    let (format, samples, plain) = (sound.format(), sound.samples(), sound.plain());
    let with = |at: usize, bytes: &[u8]| {
        let mut file = plain.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let mut cut_off = plain.clone();
    cut_off.truncate(300);
    let mut rest = plain.clone();
    rest.extend(b"dat");
    rest[4..8].copy_from_slice(&(plain.len() as u32 - 8 + 3).to_le_bytes());
    for (bytes, why) in [
        (vec![], "the file is cut off: it ends before its chunks do"),
        (plain[..30].to_vec(), "the file is cut off: it ends before its chunks do"),
        (cut_off, "the file is cut off: it ends before its chunks do"),
        (with(0, b"RIFX"), "this is no WAV file"),
        (with(8, b"AVI "), "this is no WAV file"),
        (with(4, &[3, 0, 0, 0]), "this is no WAV file"),
        (with(40, &[0xff; 4]), "the chunk `data` is said to have 4294967295 bytes, and 400 are left"),
        (rest, "it ends in the middle of a chunk's head"),
        (form(std::slice::from_ref(&samples)), "its samples come before their format"),
        (form(std::slice::from_ref(&format)), "it has no samples"),
        (form(&[format.clone(), format.clone()]), "it has two formats"),
        (form(&[format.clone(), samples.clone(), samples.clone()]), "it has samples in two places"),
        (form(&[Chunk(*b"fmt ", vec![1, 0, 1, 0]), samples.clone()]), "its format has 4 bytes, and needs 16"),
        (with(20, &[3, 0]), "its samples are in format 0x3: only PCM is read"),
        (with(20, &[0xfe, 0xff]), "its samples are in format 0xfffe: only PCM is read"),
        (with(22, &[6, 0]), "it has 6 channels: only 1 and 2 are read"),
        (with(22, &[0, 0]), "it has 0 channels: only 1 and 2 are read"),
        (with(24, &[0; 4]), "its rate is 0"),
        (with(32, &[2, 0]), "it says that 2 bytes are one sample of each channel, which are 4"),
        (with(34, &[24, 0]), "its samples have 24 bits: only 8 and 16 are read"),
        (with(40, &[143, 1, 0, 0]), "it has 399 bytes of samples, and 4 are one sample of each channel"),
        (with(40, &[0; 4]), "it has 0 bytes of samples, and 4 are one sample of each channel"),
    ] {
        let path = write(&fixture.path(""), "bad", &bytes);
        assert_eq!(read(&fixture, &path), format!("target: {}: {why}", path.display()));
    }
    let missing = fixture.path("missing.wav");
    assert_eq!(read(&fixture, &missing), format!("target: {}: No such file or directory", missing.display()));
    let long = write(&fixture.path(""), &"n".repeat(64), &plain);
    let why = "its name is longer than the 63 bytes that a recording's may have";
    assert_eq!(read(&fixture, &long), format!("target: {}: {why}", long.display()));
    assert_eq!(fixture.query("SELECT count(*) FROM recordings"), "0");
}

/// Returns the output of a target that is to read a file. If it took the file, it could not listen at this address.
fn read(fixture: &Fixture, path: &Path) -> String {
    said(&mut fixture.program("target", Transport::SHM, &["nowhere", "recordings.db", word(&path)]))
        .unwrap_err()
}
