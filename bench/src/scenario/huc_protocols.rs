//! T6, S2 and S3: hot under cold ([`huc`]) with all clients over TLS, over HTTP/2, and over both.

use super::hot_and_cold::COLD_STREAMS;
use super::{Run, huc, to_json};
use crate::failure::Result;
use crate::peer::Row;
use crate::report::Outcome;
use crate::rig::Rig;

/// Cold files per second on a fast disk: about as many as the slow disk has. At the rate of the fast disk they would use up the
/// server's processor, and the share that is left for hot requests would say nothing about waiting.
const FAST_DISK_RATE: u32 = 300;

/// A workload: what its clients speak.
pub struct Variant {
    name: &'static str,
    protocols: &'static str,
    is_http2: bool,
}

/// T6.
pub const TLS: Variant = Variant {
    name: "t6",
    protocols: "TLS 1.3",
    is_http2: false,
};

/// S2.
pub const HTTP2: Variant = Variant {
    name: "s2",
    protocols: "HTTP/2 without TLS",
    is_http2: true,
};

/// S3.
pub const HTTP2_OVER_TLS: Variant = Variant {
    name: "s3",
    protocols: "HTTP/2 over TLS 1.3",
    is_http2: true,
};

/// Runs the workload.
///
/// # Errors
/// The rig or a server fails.
pub fn run(rig: &Rig, rows: &[Row], run: &Run, variant: &Variant) -> Result<Outcome> {
    let cold_rate = (!rig.is_slow()).then_some(FAST_DISK_RATE);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| match variant.is_http2 {
            true => row.requested_over_http2(),
            false => row.clone(),
        })
        .collect();
    let measured = huc::measure(rig, &rows, run, cold_rate)?;
    Ok(Outcome {
        name: variant.name.into(),
        caption: caption(run, cold_rate, variant),
        table: huc::table(&rows, &measured),
        passes: to_json(&measured)?,
        picture: None,
    })
}

fn caption(run: &Run, cold_rate: Option<u32>, variant: &Variant) -> String {
    let streams = match variant.is_http2 {
        true => format!(" {COLD_STREAMS} requests for cold files share a connection at a time."),
        false => String::new(),
    };
    let rate = cold_rate.map_or(String::new(), |rate| {
        format!(" The cold files are requested at {rate} per second.")
    });
    format!(
        "All clients, of hot and of cold files, use {}.{streams}{rate} {}",
        variant.protocols,
        huc::caption(run)
    )
}
