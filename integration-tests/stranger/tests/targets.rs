//! A target in a user's program: functions that it names once, arguments that it owns.

use farjump::{Target, export};

#[derive(Debug)]
struct Rows(Vec<u64>);

unsafe extern "C" fn rows_get(rows: *const Rows, key: u64) -> u64 {
    // SAFETY: injected code passes its target_args on.
    unsafe { &*rows }.0.get(key as usize).copied().unwrap_or(0)
}

extern "C" fn nine(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8) -> u64 {
    [a, b, c, d, e, f, g, h, i].map(u64::from).iter().sum()
}

extern "C" fn none() {}

#[test]
fn exports_have_the_names_of_their_functions_and_any_number_of_arguments() {
    let exports = [export!(rows_get(_, _)), export!(nine(_, _, _, _, _, _, _, _, _)), export!(self::none())];
    assert_eq!(exports.map(|export| export.name()), ["rows_get", "nine", "none"]);
}

#[test]
fn a_target_gives_the_arguments_back_that_it_owned_and_nothing_else() {
    let address =
        format!("unix:{}/farjump-stranger-{}.sock", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let mut target = Target::listen(&address)
        .args_owned(0_u8) // replaced by the next
        .args_owned(Rows(vec![1, 2, 3]))
        .exports([export!(rows_get(_, _)), export!(none())])
        .build()
        .unwrap();
    target.args_mut::<Rows>().unwrap().0.push(4);
    assert!(target.args_mut::<u8>().is_none());
    let target = target.spawn().unwrap().stop().unwrap();
    let target = target.into_args::<Vec<u64>>().expect_err("it owns no such value");
    assert_eq!(target.into_args::<Rows>().unwrap().0, [1, 2, 3, 4]);

    let mut borrowed = Rows(Vec::new());
    let target = Target::listen(&address).args(&mut borrowed).build().unwrap();
    drop(target.into_args::<Rows>().expect_err("it is the caller's"));
    borrowed.0.push(1);
}
