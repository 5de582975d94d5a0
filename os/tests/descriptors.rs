//! Free descriptors of a process. This is a program of its own, because it sets a limit, and no other test
//! may open files in it.

use farjump_os::limits::free_descriptors;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn free_descriptors_are_counted_up_to_the_given_number() {
    const LIMIT: usize = 128;
    let limits = Rlimit { current: Some(LIMIT as u64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limits).unwrap();
    assert_eq!(free_descriptors(0), 0);
    assert_eq!(free_descriptors(3), 3);
    let before = free_descriptors(LIMIT);
    assert!((LIMIT / 2..LIMIT).contains(&before), "{before}");
    let files: Vec<_> = (0..5).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    assert_eq!(free_descriptors(LIMIT), before - files.len());
}
