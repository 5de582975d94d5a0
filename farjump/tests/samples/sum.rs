//! `sum`, in C and in Rust, against sums in `f64`.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::support::{Pair, Place, library};

const LANGUAGES: [&str; 2] = ["sum", "sum.rs"];

fn sum(pair: &mut Pair<'_>, language: &str, floats: &[f32]) -> f64 {
    let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    let reply = pair.call(&library(language), &bytes).unwrap();
    f64::from_le_bytes((*reply).try_into().unwrap())
}

#[test]
fn floats_are_summed_up_as_rust_does_in_double_precision() {
    let place = Place::new();
    let pair = RefCell::new(Pair::new(&place));
    // Multiples of 2^-8 below 2^33: no sum of so few of them needs more than the 53 bits of a double, in any
    // order.
    let float =
        (-0xff_ffff..=0xff_ffff_i32, -8..=8_i32).prop_map(|(digits, e)| digits as f32 * 2_f32.powi(e));
    let floats = proptest::collection::vec(float, 0..2000);
    let same = |floats: Vec<f32>| {
        let expected: f64 = floats.iter().copied().map(f64::from).sum();
        for language in LANGUAGES {
            prop_assert_eq!(sum(&mut pair.borrow_mut(), language, &floats), expected, "{}", language);
        }
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(200)).run(&floats, same).unwrap();
}

#[test]
fn a_sum_does_not_lose_what_a_float_would() {
    let (_place, mut pair) = Pair::start();
    let many = vec![0.1_f32; 500_000];
    let expected = f64::from(0.1_f32) * 500_000.0;
    for language in LANGUAGES {
        assert_eq!(sum(&mut pair, language, &many), expected, "{language}");
        assert_eq!(sum(&mut pair, language, &[f32::MAX, f32::MAX]), 2.0 * f64::from(f32::MAX), "{language}");
        assert_eq!(sum(&mut pair, language, &[1.0, f32::INFINITY]), f64::INFINITY, "{language}");
        assert!(sum(&mut pair, language, &[f32::INFINITY, f32::NEG_INFINITY]).is_nan(), "{language}");
        assert_eq!(sum(&mut pair, language, &[]), 0.0, "{language}");
    }
}

#[test]
fn bytes_that_are_no_whole_floats_are_refused_in_words() {
    let (_place, mut pair) = Pair::start();
    for language in LANGUAGES {
        for len in [1, 2, 3, 5, 41, 4095] {
            let error = pair.call(&library(language), &vec![0; len]).unwrap_err().to_string();
            assert!(error.contains("`sum` panicked at the target: the payload is no array"), "{error}");
        }
        assert_eq!(sum(&mut pair, language, &[0.5, 0.25]), 0.75, "{language}");
    }
}
