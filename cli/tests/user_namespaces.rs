//! A target in a user namespace that maps no user.

use crate::workbench::{Serving, Workbench, finish};

#[test]
fn a_target_that_knows_no_users_serves_none_and_says_what_to_do() {
    let bench = Workbench::new();
    if finish(bench.program("unshare").args(["-U", "true"])).code != 0 {
        return println!("skipped: unshare(1) can make no user namespace here");
    }
    let farjump = env!("CARGO_BIN_EXE_farjump");
    let address = bench.address();
    let serve = ["-U", farjump, "serve", "--listen", &address, "--transport", "shm", "--allow-export"];
    let serving = Serving::start(bench.program("unshare").args(serve));
    let done = bench.run(["stats", "--to", &address]);
    let text = done.error(3);
    assert!(text.contains("user namespace") && text.contains("maps"), "{text}");
    serving.stop();
}
