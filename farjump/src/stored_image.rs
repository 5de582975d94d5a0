//! Descriptions of stored code, for users and programs.

use std::time::Duration;

pub use farjump_control::StoredImage;
use farjump_core::code::CodeKind;
use farjump_loader::{LinkedImage, Manifest};

/// Describes `linked`. `now` is the time in nanoseconds by the clock that stamps calls. `own` is true for a function of
/// the target's own.
pub(crate) fn describe(linked: &LinkedImage, now: u64, own: bool) -> StoredImage {
    let (usage, bytes) = (linked.usage(), linked.image().len());
    let mut image = StoredImage::new(linked.id(), linked.name(), bytes, linked.origin());
    (image.link_time, image.calls, image.time) = (linked.link_time(), usage.calls(), usage.time());
    image.last_use = Duration::from_nanos(now.saturating_sub(usage.last()));
    image.own = own;
    image.platform = linked.label();
    // Code for one CPU is in no family. Code whose source named none is the only one of its library.
    if let Some(kind) = linked.kind().filter(|kind| !matches!(kind, CodeKind::Exact(_))) {
        let alone = || Some(Manifest::new([(kind, linked.id())]).ok()?.id());
        image.family = linked.family().copied().or_else(alone).unwrap_or(image.family);
    }
    image
}
