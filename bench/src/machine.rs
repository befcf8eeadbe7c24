//! The circumstances of a run: date, machine and commit.

use crate::failure::{Context, Failure, Result};
use crate::rig::Rig;
use crate::rig::device::Device;
use crate::rig::journal::run_quietly;
use crate::rig::slow_disk::Calibration;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The circumstances of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// UTC, as 2026-01-31.
    pub date: String,
    /// The commit of the working tree, with `-dirty` when it had changes; `unknown` without a repository.
    pub commit: String,
    /// The model name of the CPU.
    pub cpu: String,
    /// CPUs that may be used.
    pub cores: usize,
    /// Memory of the machine in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// File system of the hot files.
    pub hot_file_system: String,
    /// A description of the disk with the cold files.
    pub cold_disk: String,
    /// Read-ahead window of the cold device, in KiB.
    pub read_ahead_kb: String,
    /// I/O scheduler of the cold device.
    pub scheduler: String,
    /// Speed of the emulated disk in this run.
    pub calibration: Vec<Calibration>,
    /// Memory of the server with its page cache, in MiB.
    pub server_memory_mib: u64,
    /// Load average of the last minute when the run began; on a quiet machine it is below 1.
    pub load_average: String,
    /// Where server and load ran.
    pub placement: String,
}

impl Machine {
    /// Collects the circumstances. `load_average` is taken before the rig is set up, because that causes load.
    #[must_use]
    pub fn of(rig: &Rig, load_average: String) -> Self {
        Self {
            date: output_of(Command::new("date").args(["--utc", "+%Y-%m-%d"])),
            commit: commit(),
            cpu: field("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: memory_mib(),
            kernel: line("/proc/sys/kernel/osrelease"),
            hot_file_system: file_system(&rig.docroot.join("hot")),
            cold_disk: cold_disk(rig),
            read_ahead_kb: rig.device.queue_setting("read_ahead_kb"),
            scheduler: rig.device.queue_setting("scheduler"),
            calibration: rig.calibration.clone(),
            server_memory_mib: rig.memory_mib(),
            load_average,
            placement: placement(rig),
        }
    }

    /// One sentence below a table.
    #[must_use]
    pub fn sentence(&self) -> String {
        let speed: Vec<_> = self
            .calibration
            .iter()
            .map(|at| format!("{:.0} reads/s at depth {}", at.reads_per_second, at.depth))
            .collect();
        let speed = if speed.is_empty() {
            String::new()
        } else {
            format!(" (fio: {})", speed.join(", "))
        };
        format!(
            "{date}, commit {commit}. {cpu}, {cores} CPUs, {memory} MiB, Linux {kernel}; hot files on {hot}, cold files on \
             {cold}{speed}, read-ahead {ahead} KiB, scheduler {scheduler}; server limited to {limit} MiB, {placement}; load average before {load_average}.",
            date = self.date,
            commit = self.commit,
            cpu = self.cpu,
            cores = self.cores,
            memory = self.memory_mib,
            kernel = self.kernel,
            hot = self.hot_file_system,
            cold = self.cold_disk,
            ahead = self.read_ahead_kb,
            scheduler = self.scheduler,
            limit = self.server_memory_mib,
            placement = self.placement,
            load_average = self.load_average,
        )
    }
}

/// Load average of the last minute.
#[must_use]
pub fn load_average() -> String {
    line("/proc/loadavg")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Idle CPU seconds of all processors since the start of the machine, to a tick of 10 ms.
///
/// # Errors
/// `/proc/stat` cannot be read.
pub fn idle_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context(|| "read /proc/stat".into())?;
    idle_seconds_in(&text).ok_or_else(|| Failure::new("no idle time in /proc/stat"))
}

/// Of all processors: idle, and idle while a disk is awaited.
fn idle_seconds_in(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    // After user, nice and system time. The unit is that of user space, which is 100 everywhere but on Alpha and IA-64.
    Some((fields.get(3)? + fields.get(4)?) / 100.0)
}

/// Memory of the kernel, of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KernelMemory {
    /// Pages of the buffers of TCP sockets.
    pub tcp_buffer_bytes: u64,
    /// Small objects, such as sockets, open files and their entries in epoll.
    pub slab_bytes: u64,
}

impl KernelMemory {
    /// At present.
    ///
    /// # Errors
    /// `/proc` is not as expected.
    pub fn now() -> Result<Self> {
        let read = |file: &str| fs::read_to_string(file).context(|| format!("read {file}"));
        let page = rustix::param::page_size() as u64;
        Self::of(&read("/proc/net/sockstat")?, &read("/proc/meminfo")?, page)
            .ok_or_else(|| Failure::new("no figures in /proc/net/sockstat or /proc/meminfo"))
    }

    fn of(sockstat: &str, meminfo: &str, page: u64) -> Option<Self> {
        let tcp = sockstat
            .lines()
            .find_map(|line| line.strip_prefix("TCP:"))?;
        let mut words = tcp.split_whitespace().skip_while(|word| *word != "mem");
        let pages: u64 = words.nth(1)?.parse().ok()?;
        let slab = meminfo
            .lines()
            .find_map(|line| line.strip_prefix("Slab:"))?;
        let slab: u64 = slab.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(Self {
            tcp_buffer_bytes: pages * page,
            slab_bytes: slab * 1024,
        })
    }
}

fn commit() -> String {
    let described = output_of(Command::new("git").args([
        "describe",
        "--always",
        "--dirty",
        "--exclude=*",
        "--abbrev=10",
    ]));
    if described.is_empty() {
        "unknown".into()
    } else {
        described
    }
}

fn cold_disk(rig: &Rig) -> String {
    use crate::rig::Disk;
    match rig.setup.disk {
        Disk::Native => format!(
            "{} on the machine's disk",
            file_system(&rig.docroot.join("cold"))
        ),
        Disk::Delay => format!(
            "ext4 on an emulated disk of {} ms and {} spindles",
            rig.setup.read_delay_ms, rig.spindles
        ),
        Disk::Seek => format!(
            "ext4 on an emulated disk with {} heads that travel",
            rig.spindles
        ),
    }
}

fn placement(rig: &Rig) -> String {
    match (rig.server_cpu(), rig.load_cpu()) {
        (Some(server), Some(load)) => {
            format!("server on CPU {server}, load and disk emulation on CPU {load}")
        }
        _ => "server and load on any CPU".into(),
    }
}

fn file_system(path: &Path) -> String {
    let kind = output_of(
        Command::new("stat")
            .args(["--file-system", "--format=%T"])
            .arg(path),
    );
    let kind = if kind == "ext2/ext3" {
        "ext4".into()
    } else {
        kind
    };
    Device::holding(path).map_or(kind.clone(), |device| format!("{kind} ({})", device.name))
}

fn memory_mib() -> u64 {
    let total = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    total
        .trim_end_matches(" kB")
        .parse::<u64>()
        .map_or(0, |kilobytes| kilobytes / 1024)
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn line(file: &str) -> String {
    fs::read_to_string(file)
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

fn output_of(command: &mut Command) -> String {
    run_quietly(command)
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_kernel_is_read_from_two_files() {
        let sockstat =
            "sockets: used 9\nTCP: inuse 6 orphan 0 tw 0 alloc 6 mem 3\nUDP: inuse 0 mem 7\n";
        let meminfo = "MemTotal: 9 kB\nSlab:             500 kB\nSReclaimable: 3 kB\n";
        let expected = KernelMemory {
            tcp_buffer_bytes: 12_288,
            slab_bytes: 512_000,
        };
        assert_eq!(KernelMemory::of(sockstat, meminfo, 4096), Some(expected));
        assert_eq!(KernelMemory::of("UDP: mem 7", meminfo, 4096), None);
        assert!(KernelMemory::now().unwrap().slab_bytes > 0);
    }

    #[test]
    fn idle_time_includes_the_wait_for_disks() {
        let stat = "cpu  100 0 50 900 100 0 0 7 0 0\ncpu0 50 0 25 450 50 0 0 3 0 0\n";
        assert_eq!(idle_seconds_in(stat), Some(10.0));
        assert_eq!(idle_seconds_in("cpu  100 0 50\n"), None);
        assert!(idle_seconds().unwrap() > 0.0);
    }
}
