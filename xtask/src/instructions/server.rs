//! A server with one event loop, no log and one hot file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::files;
use crate::run::Result;

/// The path of the file.
pub const PATH: &str = "/file.html";
const FILE_BYTES: usize = 1024;
/// The content of a file that has just been written is not kept in memory.
const FILE_AGE: Duration = Duration::from_secs(3600);

/// The event loop, as the kernel names its thread.
const LOOP: &str = "worker-0";
const LISTENING: &str = "listening on http://";

/// A server that runs until this is dropped.
pub struct Server {
    process: Child,
    /// Kept open: the server writes to it.
    _messages: BufReader<ChildStderr>,
    address: String,
    _folder: TempDir,
}

impl Server {
    /// Starts `binary` on a free port of the loopback interface. Waits until it listens.
    ///
    /// # Errors
    /// The program cannot be started, or ends at once; with what it says.
    pub fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        let configuration = configure(folder.path())
            .map_err(|error| format!("{}: {error}", folder.path().display()))?;
        let mut process = Command::new(binary)
            .arg("run")
            .arg(configuration)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let messages = process.stderr.take().expect("it is piped");
        let mut messages = BufReader::new(messages);
        let address = address(&mut messages);
        // From here on dropping it ends the process.
        let mut server = Self {
            process,
            _messages: messages,
            address: String::new(),
            _folder: folder,
        };
        server.address = address?;
        Ok(server)
    }

    /// Its address and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process.
    pub fn id(&self) -> i32 {
        self.process.id() as i32
    }

    /// The thread of the event loop, and all others.
    ///
    /// # Errors
    /// There is no such thread.
    pub fn threads(&self) -> Result<(i32, Vec<i32>)> {
        let tasks = files::entries(&PathBuf::from(format!("/proc/{}/task", self.id())))?;
        let is_loop = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == LOOP)
        };
        let number = |task: PathBuf| task.file_name()?.to_str()?.parse().ok();
        let (loops, others): (Vec<_>, Vec<_>) = tasks.into_iter().partition(is_loop);
        let mut loops = loops.into_iter().filter_map(number);
        let others = others.into_iter().filter_map(number).collect();
        match (loops.next(), loops.next()) {
            (Some(one), None) => Ok((one, others)),
            _ => Err(format!("the program has not one thread {LOOP}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the file and the configuration, whose path is returned.
fn configure(folder: &Path) -> std::io::Result<PathBuf> {
    let root = folder.join("root");
    fs::create_dir(&root)?;
    let path = root.join(&PATH[1..]);
    fs::write(&path, "x".repeat(FILE_BYTES))?;
    File::options()
        .write(true)
        .open(path)?
        .set_modified(SystemTime::now() - FILE_AGE)?;
    let configuration = folder.join("levity.toml");
    let root = root.display();
    // What is known of the file is never checked again, because the server seems to take very long for each request.
    fs::write(
        &configuration,
        format!(
            "[server]\nworkers = 1\n[disk]\nentry_ttl = \"1h\"\n[log]\naccess = \"off\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nroot = \"{root}\"\n"
        ),
    )?;
    Ok(configuration)
}

/// The address that the program says it listens on.
fn address(messages: &mut impl BufRead) -> Result<String> {
    let mut said = String::new();
    for line in messages.lines() {
        let line = line.map_err(|error| error.to_string())?;
        if let Some((_, address)) = line.split_once(LISTENING) {
            return Ok(address.trim_end_matches('/').to_owned());
        }
        said += &line;
        said.push('\n');
    }
    Err(format!("the program does not listen:\n{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_what_the_program_says() {
        let said = "levity: a note\nlevity: listening on http://127.0.0.1:4711/\nlevity: more\n";
        assert_eq!(address(&mut said.as_bytes()).unwrap(), "127.0.0.1:4711");
        let error = address(&mut "levity: no such key\n".as_bytes()).unwrap_err();
        assert!(error.contains("no such key"), "{error}");
    }
}
