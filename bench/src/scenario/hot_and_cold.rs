//! The loads of `huc` and `huc-n`: a small file in memory, and a hundred clients that fetch cold files.

use super::Run;
use crate::failure::Result;
use crate::load::command::Load;
use crate::peer::Server;
use crate::rig::Rig;
use crate::rig::tree::FileSet;
use std::path::PathBuf;

const HOT_PATH: &str = "/hot/4096.bin";
const HOT_BYTES: u64 = 4096;
/// Connections of the closed loop.
pub const CLOSED_CONNECTIONS: usize = 4;
/// Connections of the open loop.
pub const OPEN_CONNECTIONS: usize = 32;
/// Requests for cold files at a time. Each has a connection, over HTTP/2 a stream.
pub const COLD_CLIENTS: usize = 100;
/// Of which so many share a connection over HTTP/2.
pub const COLD_STREAMS: usize = 10;

/// How the hot file is requested.
#[derive(Clone, Copy)]
pub enum Loop {
    /// As fast as the server responds.
    Closed,
    /// At the fixed rate of the run.
    Open,
}

/// The loads of one row in one pass.
pub struct Loads<'a> {
    /// The rig.
    pub rig: &'a Rig,
    /// The options.
    pub run: &'a Run,
    /// The pass.
    pub pass: u64,
    /// The cold files.
    pub set: FileSet,
    /// Cold files per second; None for as many as the server sends.
    pub cold_rate: Option<u32>,
}

/// The load on the hot file, for the seconds of a measurement.
#[must_use]
pub fn hot(run: &Run, server: &Server, kind: Loop) -> Load {
    let mut load = server.load(HOT_PATH, CLOSED_CONNECTIONS, run.seconds);
    load.body_bytes = Some(HOT_BYTES);
    if let Loop::Open = kind {
        load.connections = OPEN_CONNECTIONS;
        load.rate = Some(run.rate);
    }
    load
}

impl Loads<'_> {
    /// As [`hot`].
    #[must_use]
    pub fn hot(&self, server: &Server, kind: Loop) -> Load {
        hot(self.run, server, kind)
    }

    /// The load on the cold files, each once, for the seconds of a measurement.
    ///
    /// # Errors
    /// The list of files cannot be written.
    pub fn cold(&self, server: &Server, kind: Loop) -> Result<Load> {
        let mut load = server.load("", COLD_CLIENTS, self.run.seconds);
        if load.streams.is_some() {
            load.connections = COLD_CLIENTS / COLD_STREAMS;
            load.streams = Some(COLD_STREAMS);
        }
        load.rate = self.cold_rate;
        load.list = Some(self.cold_list(kind)?);
        load.body_bytes = Some(self.set.bytes as u64);
        Ok(load)
    }

    /// The list of the cold files, in another order for each pass and loop.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn cold_list(&self, kind: Loop) -> Result<PathBuf> {
        let seed = self.pass * 2 + kind as u64;
        self.rig.list(&self.set, seed, self.set.files)
    }

    /// Empties the caches but for the hot file.
    ///
    /// # Errors
    /// Not root, or the server does not respond.
    pub fn cool_down(&self, server: &Server) -> Result<()> {
        self.rig.drop_caches()?;
        let mut touch = server.load(HOT_PATH, 1, 0.01);
        touch.body_bytes = Some(HOT_BYTES);
        touch.measure(self.rig.load_cpu()).map(drop)
    }
}
