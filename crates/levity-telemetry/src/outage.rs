//! Messages about devices that do not answer. Failed requests log nothing: there may be thousands while a mount is
//! dead.

use levity_disk::{Outage, Stage};

use crate::diagnostics;
use crate::mounts::Mounts;
use crate::stats::device_number;

/// Logs an outage. Reads the kernel's table of mounts, so that event loops must not call it.
pub fn report(outage: Outage) {
    let name = name(outage.device);
    let (silent, refused) = (outage.silent, outage.refused);
    match outage.stage {
        Stage::Began => diagnostics::log(format_args!(
            "{name} does not respond: no operation has completed for {silent:.1?}. Requests that need it get 503 until one does"
        )),
        Stage::GoesOn => diagnostics::log(format_args!(
            "{name} has not responded for {silent:.0?}: {refused} requests refused so far"
        )),
        Stage::Ended => diagnostics::log(format_args!(
            "{name} responds again after {silent:.1?}: {refused} requests were refused"
        )),
    }
}

fn name(device: u64) -> String {
    let number = device_number(device);
    let mounts = Mounts::read().unwrap_or_default();
    match mounts.of(device, std::iter::empty()) {
        Some(mount) => format!(
            "the file system at {} ({}, device {number})",
            mount.path.display(),
            mount.file_system
        ),
        None => format!("device {number}"),
    }
}
