//! The servers with mailboxes: nginx with nchan, Centrifugo, and the writer that fan-outs are compared with.

use super::{Program, Row};
use crate::failure::{Context, Failure, Result};
use crate::mailbox::dialect::Dialect;
use crate::rig::Rig;
use crate::rig::confine::NOBODY;
use crate::rig::journal::run_quietly;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The peers with mailboxes, by their names on the command line.
pub const MAILBOXES: [&str; 2] = ["nchan", "centrifugo"];
/// The key of those who publish to Levity.
pub const KEY: &str = "a-key-of-the-benchmark-with-32-bytes-or-more";
/// The name of the row of the writer.
pub const WRITER: &str = "writer";

const LEVITY: &str = include_str!("../../peers/mailbox/levity.toml");
const CENTRIFUGO: &str = include_str!("../../peers/mailbox/centrifugo.json");
const CENTRIFUGO_MODULE: &str = "github.com/centrifugal/centrifugo/v6@v6.9.1";
const NCHAN_MODULE: &str = "load_module /usr/lib/nginx/modules/ngx_nchan_module.so;";
/// As many messages are kept as Levity keeps, and they live as long as a run.
const NCHAN_LOCATIONS: &str = "        location ~ ^/sub/(\\w+)$ { nchan_subscriber eventsource; nchan_channel_id $1; \
     nchan_subscriber_first_message newest; nchan_eventsource_ping_interval 15; }\n        \
     location ~ ^/pub/(\\w+)$ { nchan_publisher; nchan_channel_id $1; nchan_message_buffer_length 64; \
     nchan_message_timeout 3600s; }";
/// With nchan, nginx makes this folder, too, whatever the configuration says. Only root can, and here it does not start as root.
const NGINX_BODIES: &str = "/var/lib/nginx/body";
/// The limit includes what the kernel needs for sockets.
const MEMORY_MIB: u64 = 6 * 1024;
/// Connections beside those of subscribers.
const OTHER_CONNECTIONS: usize = 200;

impl Row {
    /// A peer with mailboxes, by its name. Centrifugo is built on the first run, which takes minutes.
    ///
    /// # Errors
    /// There is no such peer, or it cannot be built.
    pub fn mailbox(name: &str, rig: &Rig) -> Result<Self> {
        let mut row = match name {
            "nchan" => {
                fs::create_dir_all(NGINX_BODIES).context(|| format!("make {NGINX_BODIES}"))?;
                let mut row = Self::peer("nginx-sendfile")?.named(name.into());
                row.blanks = vec![
                    ("{modules}", NCHAN_MODULE.into()),
                    ("{compression}", "    nchan_shared_memory_size 512M;".into()),
                    ("{locations}", NCHAN_LOCATIONS.into()),
                ];
                row.dialect = Some(Dialect::Nchan);
                row
            }
            "centrifugo" => {
                let command = command(
                    &build_centrifugo(&rig.setup.dir)?,
                    &["-c", "{configuration}"],
                );
                let mut row = Self::new(name, Program::CommandLine(command), CENTRIFUGO);
                row.dialect = Some(Dialect::Centrifugo);
                row
            }
            _ => {
                let known = MAILBOXES.join(", ");
                return Err(Failure::new(format!("unknown peer {name}: {known}")));
            }
        };
        row.memory_mib = Some(MEMORY_MIB);
        Ok(row)
    }

    /// The writer.
    ///
    /// # Errors
    /// This program cannot be copied.
    pub fn writer(rig: &Rig) -> Result<Self> {
        let command = command(&rig.own_program()?, &["writer", "--address={address}"]);
        let mut row = Self::new(WRITER, Program::CommandLine(command), "");
        row.dialect = Some(Dialect::Writer);
        row.memory_mib = Some(MEMORY_MIB);
        Ok(row)
    }

    /// Levity with mailboxes for so many subscribers; `mailbox` are further keys of their set.
    ///
    /// # Errors
    /// The key of publishers cannot be written.
    pub fn with_mailboxes(&self, rig: &Rig, subscribers: usize, mailbox: &str) -> Result<Self> {
        let key = write_key(&rig.setup.dir)?;
        let connections = subscribers + OTHER_CONNECTIONS;
        let blanks = vec![
            ("{connections}", connections.to_string()),
            ("{key}", key.display().to_string()),
            ("{mailbox}", mailbox.into()),
        ];
        Ok(Self {
            template: LEVITY,
            blanks,
            dialect: Some(Dialect::Levity),
            memory_mib: Some(MEMORY_MIB),
            ..self.clone()
        })
    }

    /// The same with messages on the disk, in this folder.
    #[must_use]
    pub fn with_disk(&self, folder: &Path) -> Self {
        let folder = folder.display();
        Self {
            settings: format!("[mailbox_store]\nstore = \"disk\"\nfolder = \"{folder}\"\n"),
            ..self.clone()
        }
    }

    /// How it spells requests for mailboxes; None if it has none.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }
}

fn command(binary: &Path, arguments: &[&str]) -> Vec<String> {
    let binary = binary.display().to_string();
    let arguments = arguments.iter().map(|&word| word.to_owned());
    [binary].into_iter().chain(arguments).collect()
}

/// Readable by the servers only.
fn write_key(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("publish-key");
    let written = || {
        fs::write(&path, KEY)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        chown(&path, Some(NOBODY), Some(NOBODY))
    };
    written().context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Builds it with the module proxy that the machine has, into the directory of the rig.
fn build_centrifugo(dir: &Path) -> Result<PathBuf> {
    let go = dir.join("go");
    let binary = go.join("bin/centrifugo");
    if binary.exists() {
        return Ok(binary);
    }
    eprintln!("levity-bench: build {CENTRIFUGO_MODULE}");
    let mut install = Command::new("go");
    install
        .args(["install", CENTRIFUGO_MODULE])
        .env("GOPATH", &go)
        .env("GOCACHE", go.join("cache"))
        .env("GOFLAGS", "-modcacherw");
    run_quietly(&mut install).context(|| "build centrifugo".into())?;
    Ok(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_read_the_key() {
        let dir = tempfile::tempdir().unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let path = write_key(dir.path()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_to_string(path).unwrap(), KEY);
    }
}
