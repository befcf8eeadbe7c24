//! `fcgi-stat-accel SOCKET ROOT [THREADS]`: a FastCGI application that opens the file of each
//! request, stats it and reads its first pages, in blocking threads, and responds with the file's
//! name in `X-Sendfile`. When the server then sends the file, directory, inode and first pages are
//! in memory, so it does not wait for the disk.
//!
//! Written for lighttpd 1.5, whose only thread blocked on the disk. A server that opens files in
//! its own threads gains nothing.
#![forbid(unsafe_code)]

mod fastcgi;
mod find;

use fastcgi::{Request, answer, read_request};
use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;

/// The number used in the experiment of 2007.
const THREADS: usize = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = match arguments.get(2).map(|threads| threads.parse()) {
        None => THREADS,
        Some(Ok(threads)) if threads > 0 => threads,
        Some(_) => return usage(),
    };
    let [socket, root, ..] = &arguments[..] else {
        return usage();
    };
    match serve(Path::new(socket), Path::new(root), threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fcgi-stat-accel: {socket}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: fcgi-stat-accel SOCKET ROOT [THREADS]");
    ExitCode::from(2)
}

/// Each thread serves one connection at a time, for as long as the server keeps it open: the server
/// must not open more connections than there are threads.
fn serve(socket: &Path, root: &Path, threads: usize) -> std::io::Result<()> {
    let root = root.canonicalize()?;
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| accept(&listener, &root));
        }
    });
    Ok(())
}

fn accept(listener: &UnixListener, root: &Path) {
    for stream in listener.incoming() {
        let ended = stream.and_then(|stream| converse(&stream, root));
        if let Err(error) = ended {
            eprintln!("fcgi-stat-accel: {error}");
        }
    }
}

/// Responds to the requests of one connection until the server closes it or sends one without
/// KEEP_CONN.
fn converse(stream: &UnixStream, root: &Path) -> std::io::Result<()> {
    let mut input = BufReader::new(stream);
    while let Some(Request { uri, keeps }) = read_request(&mut input)? {
        let mut output = stream;
        output.write_all(&answer(&find::fields(root, &uri)))?;
        if !keeps {
            break;
        }
    }
    Ok(())
}
