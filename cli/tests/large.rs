//! Payloads larger than any mailbox, from a file.

use crate::workbench::Workbench;

/// Replies the sum of its payload's words, each times its number, counted from 1.
const WEIGH: &str = "
FARJUMP_COPY_ARGS(weigh)
FARJUMP_IFUNC void weigh_main(void *payload, size_t size, void *args)
{
    const uint64_t *words = payload;
    uint64_t sum = size;
    for (size_t i = 0; i < size / 8; i++)
        sum += (i + 1) * words[i];
    farjump_reply(&sum, sizeof sum);
}";

fn weight(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    (1..)
        .zip(words)
        .fold(bytes.len() as u64, |sum, (number, word)| sum.wrapping_add(word.wrapping_mul(number)))
}

#[test]
fn a_file_of_64_mib_travels_whole_and_one_byte_more_is_refused_with_the_mend() {
    let bench = Workbench::new();
    let library = bench.library("weigh", WEIGH);
    let serving = bench.serve(&[]);
    let mut bytes: Vec<u8> =
        (0..(8_u64 << 20)).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    bench.write("large", &bytes);
    let done = bench.inject(&library, &["--args-file", "large", "--repeat", "3"]).worked();
    assert_eq!(done.out, weight(&bytes).to_le_bytes());

    bytes.push(1);
    bench.write("larger", &bytes);
    let refused = bench.inject(&library, &["--args-file", "larger"]);
    let text = refused.error(3);
    assert!(
        text.contains("67108865") && text.contains("67108864") && text.contains("--max-payload"),
        "{text}"
    );
    serving.stop().worked();

    let serving = bench.serve(&["--max-payload", "65M"]);
    let done = bench.inject(&library, &["--args-file", "larger"]).worked();
    assert_eq!(done.out, weight(&bytes).to_le_bytes());
    serving.stop().worked();
}
