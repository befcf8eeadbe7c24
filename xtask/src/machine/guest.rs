//! The running machine, and what it says about the checks.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::CHECK_TIME_MAX;
use crate::files;
use crate::run::{self, Result};

/// How often the machine is asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// A machine, ended with the value.
pub struct Guest {
    qemu: Child,
    shared: PathBuf,
}

impl Guest {
    /// Boots the disk in `folder`, which keeps no change. The machine has no network, and runs what is in `shared`.
    ///
    /// The processor is emulated: where the host is a virtual machine as well, KVM may be there and yet hang.
    pub fn boot(folder: &Path, shared: &Path) -> Result<Self> {
        let console = folder.join("console.log");
        let console =
            File::create(&console).map_err(|error| format!("{}: {error}", console.display()))?;
        let share = format!(
            "local,path={},mount_tag=host,security_model=none",
            shared.display()
        );
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-m", "1536", "-nographic", "-no-reboot"])
            .args(["-kernel", "vmlinuz", "-initrd", "initrd.img"])
            .args(["-append", "root=/dev/vda rw console=ttyS0 quiet"])
            .args(["-drive", "file=disk.img,format=raw,if=virtio,snapshot=on"])
            .args(["-nic", "none", "-virtfs", &share])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(console);
        let line = run::command_line(&qemu);
        eprintln!("$ {line}");
        let qemu = qemu.spawn().map_err(|error| format!("{line}: {error}"))?;
        Ok(Self {
            qemu,
            shared: shared.to_owned(),
        })
    }

    /// Waits until it has booted and for the end of each check, and says how long each took.
    ///
    /// # Errors
    /// With the output of a check that fails or does not end.
    pub fn follow(mut self, checks: &[String]) -> Result<()> {
        for check in std::iter::once("boot").chain(checks.iter().map(String::as_str)) {
            let start = Instant::now();
            let status = self.wait_for(check)?;
            let seconds = start.elapsed().as_secs_f64();
            // Not by a macro, whose lines a test runner keeps to itself.
            let _ = writeln!(io::stderr(), "{seconds:6.1} s  {check}");
            match status.as_deref().map(str::trim) {
                Some("0") => {}
                Some(status) => {
                    self.wait_for("journal")?;
                    return Err(self.failure(check, &format!("has failed: exit status {status}")));
                }
                None => return Err(self.failure(check, "has not ended")),
            }
        }
        Ok(())
    }

    /// The exit status that a script has left; `None` if the machine has ended without one, or the time is up.
    fn wait_for(&mut self, name: &str) -> Result<Option<String>> {
        let ended = self.shared.join(format!("{name}.ended"));
        let start = Instant::now();
        while start.elapsed() < CHECK_TIME_MAX {
            // Asked first: what ends the machine may be the last one.
            let has_ended = self
                .qemu
                .try_wait()
                .map_err(|error| format!("qemu: {error}"))?;
            if ended.exists() {
                return files::read(&ended).map(Some);
            }
            if has_ended.is_some() {
                break;
            }
            thread::sleep(INTERVAL);
        }
        Ok(None)
    }

    fn failure(&self, check: &str, what: &str) -> String {
        let log = fs::read_to_string(self.shared.join(format!("{check}.log"))).unwrap_or_default();
        let folder = self.shared.display();
        format!("{log}\n{check} {what}; the logs of all checks and the journal are in {folder}")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
