//! Sources of two domains at one target.

use std::sync::Arc;
use std::time::Duration;

use farjump_core::image::{ImageParts, Machine};
use farjump_fixtures::raw_source::RawSource;
use farjump_loader::{Domain, code_id};

use crate::executor::OwnCode;
use crate::principals::Principal;
use crate::serve::Target;

/// A function that returns at once.
#[cfg(target_arch = "x86_64")]
const RETURN: [u8; 4] = [0xc3; 4];
#[cfg(target_arch = "aarch64")]
const RETURN: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const RETURN: [u8; 4] = 0x0000_8067_u32.to_le_bytes();

/// Polls the target while another thread runs `act`.
fn meanwhile<T: Send>(target: &mut Target<'_>, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(act);
        while !other.is_finished() {
            target.wait(Duration::from_millis(1)).unwrap();
            target.poll().unwrap();
        }
        other.join().unwrap()
    })
}

#[test]
fn sources_of_different_domains_share_no_code_and_drop_only_their_own() {
    let Some(machine) = Machine::native() else {
        return eprintln!("skipped: no code is placed on this architecture");
    };
    let image = ImageParts::text(machine, &RETURN).encode().unwrap();
    let id = code_id(&image);
    let folder = farjump_fixtures::folder();
    let address = format!("unix:{}", folder.path().join("t.sock").display());
    let mut target = Target::listen(&address).build().unwrap();
    let mut sources = [0, 1].map(|_| meanwhile(&mut target, || RawSource::connect(&address)));
    let domains = [0, 1].map(Domain::numbered);
    for (session, domain) in target.sessions.iter_mut().zip(domains) {
        let (peer, rights) = (session.control.peer().clone(), session.control.rights());
        session.control.principal = Arc::new(Principal::of_link(session.id, peer, None, rights, domain));
        session.codes.move_to(domain);
    }
    let linked = |target: &Target<'_>| (target.stats().images_linked, target.images().len());
    for (count, source) in sources.iter_mut().enumerate() {
        assert!(meanwhile(&mut target, || source.call_new("code", &image, b"")).is_empty());
        assert_eq!(linked(&target), (count as u64 + 1, count + 1));
    }
    // A process that drops all code drops that of its domain.
    let dropped = target.drop_all_of(&domains.map(|domain| domain.key(id))[..1]);
    assert_eq!((dropped.images, linked(&target)), (1, (2, 1)));
    // The other domain still has its code, and the program calls it there alone.
    let [here, there] = [0, 1].map(|index| {
        let principal = Arc::clone(&target.sessions[index].control.principal);
        // SAFETY: the function returns at once.
        unsafe { target.call_for(&principal, OwnCode::Stored(id), b"") }.is_ok()
    });
    assert!(!here && there);
    meanwhile(&mut target, || sources[1].call_new("code", &image, b""));
    assert_eq!(linked(&target), (2, 1));
    meanwhile(&mut target, || sources[0].call_new("code", &image, b""));
    assert_eq!(linked(&target), (3, 2));
    assert!(target.drop_code(&id), "the program drops all");
    assert_eq!(linked(&target), (3, 0));
}
