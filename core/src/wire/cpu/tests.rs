use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn v3() -> Level {
    Level::new(Machine::X86_64, 3).unwrap()
}

fn sample() -> Cpu {
    Cpu::new(Machine::X86_64, v3(), "znver2", ["bmi2", "avx2", "bmi2"]).unwrap()
}

/// The encoding of [`sample`].
const SAMPLE: &[u8] = b"\x3e\0\x03\x01\x06\x02znver2\x04avx2\x04bmi2";

#[test]
fn the_encoding_is_the_documented_one() {
    assert_eq!(sample().encode(), SAMPLE);
    assert_eq!(Cpu::decode(SAMPLE), Ok(sample()));
    let plain = Cpu::new(Machine(7), Level::BASELINE, "", [""; 0]).unwrap();
    assert_eq!(plain.encode(), [7, 0, 0, 1, 0, 0]);
}

#[test]
fn features_are_found_by_their_whole_name() {
    let cpu = sample();
    assert_eq!(cpu.features(), ["avx2", "bmi2"]);
    assert!(cpu.has("avx2") && cpu.has("bmi2"));
    for other in ["", "avx", "avx2,", "bmi", "sse2"] {
        assert!(!cpu.has(other), "{other:?}");
    }
}

#[test]
fn a_cpu_of_a_level_has_that_level_by_its_features() {
    for machine in [Machine::X86_64, Machine::AARCH64, Machine::RISCV] {
        for level in Level::all(machine) {
            let cpu = Cpu::of_level(machine, level);
            assert_eq!(Cpu::level_with(machine, |feature| cpu.has(feature)), level);
            assert_eq!(Cpu::decode(&cpu.encode()).as_ref(), Ok(&cpu));
            // Without any one of its features the level is lower, or the lowest.
            for missing in cpu.features() {
                let lower = Cpu::level_with(machine, |feature| feature != missing && cpu.has(feature));
                assert!(lower < level || lower == Level::BASELINE, "{missing}");
            }
        }
    }
}

#[test]
fn each_fault_is_named() {
    let with = |at: usize, byte: u8| {
        let mut bytes = SAMPLE.to_vec();
        bytes[at] = byte;
        bytes
    };
    let machine = Machine::X86_64;
    let cases = [
        (vec![], CpuError::Truncated { found: 0 }),
        (SAMPLE[..SAMPLE.len() - 1].to_vec(), CpuError::Truncated { found: SAMPLE.len() - 1 }),
        (with(4, 60), CpuError::Truncated { found: SAMPLE.len() }),
        (with(5, 3), CpuError::Truncated { found: SAMPLE.len() }),
        ([SAMPLE, b"x"].concat(), CpuError::Excess { len: 1 }),
        (with(5, 1), CpuError::Excess { len: 5 }),
        (vec![0; MAX_LEN + 1], CpuError::TooLong { found: MAX_LEN + 1 }),
        (with(2, 1), CpuError::Level { machine, number: 1 }),
        (with(2, 5), CpuError::Level { machine, number: 5 }),
        // A level of another machine.
        (with(0, 183), CpuError::Level { machine: Machine::AARCH64, number: 3 }),
        (with(3, 9), CpuError::Forms(9)),
        (with(6, b'-'), CpuError::Name),
        (with(7, b'N'), CpuError::Name),
        (with(7, b' '), CpuError::Name),
        (with(7, b','), CpuError::Name),
        (with(7, 0xff), CpuError::Name),
        (with(13, b'-'), CpuError::Feature { index: 0 }),
        (with(18, b'+'), CpuError::Feature { index: 1 }),
        // Descending, and twice the same.
        (with(18, b'a'), CpuError::Order { index: 1 }),
        (b"\x3e\0\0\x01\0\x02\x01a\x01a".to_vec(), CpuError::Order { index: 1 }),
        (b"\x3e\0\0\x01\0\x01\0".to_vec(), CpuError::Feature { index: 0 }),
        ([&b"\x3e\0\0\x01\0\x01\x21"[..], &[b'a'; 33]].concat(), CpuError::Feature { index: 0 }),
        ([&b"\x3e\0\0\x01\x41\0"[..], &[b'a'; 65]].concat(), CpuError::Name),
    ];
    for (bytes, error) in cases {
        assert_eq!(Cpu::decode(&bytes), Err(error), "{bytes:?}");
    }
}

#[test]
fn a_cpus_code_forms_survive_encoding() {
    let both = Forms::NATIVE | Forms::BITCODE;
    let cpu = Cpu::of_level(Machine::X86_64, v3()).with_forms(both);
    assert_eq!(Cpu::decode(&cpu.encode()).unwrap().forms(), both);
}

#[test]
fn no_cpu_is_made_that_would_not_decode() {
    let new = |name: &str, features: Vec<String>| Cpu::new(Machine::X86_64, v3(), name, features);
    assert_eq!(new("a b", vec![]), Err(CpuError::Name));
    assert_eq!(new("", vec!["-mavx".to_string()]), Err(CpuError::Feature { index: 0 }));
    let many = |count: usize| (0..count).map(|index| format!("{index:032}")).collect();
    assert_eq!(new("", many(256)), Err(CpuError::Features { found: 256 }));
    let largest = new(&"n".repeat(MAX_NAME), many(MAX_FEATURES)).unwrap();
    assert_eq!(largest.encode().len(), MAX_LEN);
    assert_eq!(Cpu::decode(&largest.encode()), Ok(largest));
    let other = Cpu::new(Machine::RISCV, v3(), "", [""; 0]);
    assert_eq!(other, Err(CpuError::Level { machine: Machine::RISCV, number: 3 }));
}

#[test]
fn it_prints_machine_level_and_name() {
    assert_eq!(sample().to_string(), "x86_64-unknown-linux-gnu, v3 (znver2)");
    assert_eq!(Cpu::default().to_string(), "machine 0, baseline");
}

fn any_cpu() -> impl Strategy<Value = Cpu> {
    let machine = prop_oneof![Just(Machine::X86_64), any::<u16>().prop_map(Machine)];
    let word = |max: usize| {
        let regex = format!("[a-z0-9][a-z0-9._-]{{0,{}}}", max - 1);
        proptest::string::string_regex(&regex).unwrap()
    };
    let name = prop_oneof![Just(String::new()), word(MAX_NAME)];
    let features = prop::collection::vec(word(MAX_FEATURE), 0..40);
    (machine, any::<u8>(), name, features).prop_map(|(machine, number, name, features)| {
        let level = Level::new(machine, number % 5).unwrap_or_default();
        Cpu::new(machine, level, name, features).unwrap()
    })
}

proptest! {
    #[test]
    fn any_cpu_fits_the_maximum_length_and_decodes_unchanged(cpu in any_cpu()) {
        let bytes = cpu.encode();
        prop_assert!(bytes.len() <= MAX_LEN);
        prop_assert_eq!(Cpu::decode(&bytes), Ok(cpu));
    }

    #[test]
    fn a_decoded_cpu_encodes_to_the_same_bytes(
        head in prop_oneof![
            any::<[u8; 6]>(),
            (0..5u8, 0..3u8, 0..3u8).prop_map(|(level, name, count)| [62, 0, level, 1, name, count]),
        ],
        rest in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(prop::sample::select(vec![1, 2, b'a', b'b', b'-']), 0..9),
        ],
    ) {
        let bytes = [&head[..], &rest].concat();
        if let Ok(cpu) = Cpu::decode(&bytes) {
            prop_assert_eq!(cpu.encode(), bytes);
        }
    }

    #[test]
    fn a_changed_byte_is_refused_or_canonical(cpu in any_cpu(), at: prop::sample::Index, byte: u8) {
        let mut bytes = cpu.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(cpu) = Cpu::decode(&bytes) {
            prop_assert_eq!(cpu.encode(), bytes);
        }
    }
}
