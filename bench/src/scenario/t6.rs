//! T6: hot under cold ([`huc`](super::huc)) with all clients over TLS.

use super::{Run, huc, to_json};
use crate::failure::Result;
use crate::peer::Row;
use crate::report::Outcome;
use crate::rig::Rig;

/// Cold files per second on a fast disk, about as many as the slow one has. As many as the disk has would use up the
/// server's processor, and the share that hot requests keep of it would say nothing about waiting.
const FAST_DISK_RATE: u32 = 300;

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run) -> Result<Outcome> {
    let cold_rate = (!rig.is_slow()).then_some(FAST_DISK_RATE);
    let measured = huc::measure(rig, rows, run, cold_rate)?;
    let rate = cold_rate.map_or(String::new(), |rate| {
        format!(" The cold files are requested at {rate} per second.")
    });
    Ok(Outcome {
        name: "t6".into(),
        caption: format!(
            "All clients, of hot and of cold files, use TLS 1.3.{rate} {}",
            huc::caption(run)
        ),
        table: huc::table(rows, &measured),
        passes: to_json(&measured)?,
        picture: None,
    })
}
