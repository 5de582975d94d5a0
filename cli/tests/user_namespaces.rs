//! A target in a user namespace that maps no user.

use crate::workbench::{Workbench, finish, start_target};

#[test]
fn a_target_in_an_unmapped_user_namespace_refuses_with_the_reason() {
    let bench = Workbench::new();
    if finish(bench.program("unshare").args(["-U", "true"])).code != 0 {
        return println!("skipped: unshare(1) can make no user namespace here");
    }
    let farjump = env!("CARGO_BIN_EXE_farjump");
    let address = bench.address();
    let serve = ["-U", farjump, "serve", "--listen", &address, "--transport", "shm", "--allow-export"];
    let (serving, _) = start_target(bench.program("unshare").args(serve));
    bench.run(["stats", "--to", &address]).fails(3, &["user namespace", "maps"]);
    serving.stop();
}
