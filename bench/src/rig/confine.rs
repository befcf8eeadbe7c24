//! Confinement of processes: CPU, control group and user.

use crate::failure::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group `nobody`: for root, EACCES, the memlock limit and EPERM of cachestat would not show.
pub const NOBODY: u32 = 65534;
/// As root, joins the groups in `$1` and raises the limit of open files. Then executes the other arguments.
const ENTER: &str = r#"
for group in $1; do echo $$ > "$group/cgroup.procs" || exit 1; done
shift
ulimit -n "$(ulimit -H -n)" || exit 1
exec "$@"
"#;

/// As root, makes everything on the file system of `/` read-only but the folder `$1`, in a mount namespace of its own. Then executes the
/// other arguments.
const READ_ONLY: &str = r#"
mount --bind "$1" "$1" && mount -o remount,bind,ro / || exit 1
shift
exec "$@"
"#;

/// This program with these arguments, pinned to `cpu` if given.
///
/// # Errors
/// The path of the running program is unknown.
pub fn pinned(cpu: Option<usize>, arguments: &[String]) -> Result<Command> {
    let program = std::env::current_exe().context(|| "path of this program".into())?;
    let mut command = tool(cpu, &program.to_string_lossy());
    command.args(arguments);
    Ok(command)
}

/// A program, pinned to a CPU if given.
#[must_use]
pub fn tool(cpu: Option<usize>, program: &str) -> Command {
    let Some(cpu) = cpu else {
        return Command::new(program);
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string(), program]);
    command
}

/// A server: unprivileged, in these control groups, pinned to a CPU if given, and where all but `writable` is read-only if that is given. It
/// is killed when the rig ends.
#[must_use]
pub fn server(
    groups: &[PathBuf],
    cpu: Option<usize>,
    writable: Option<&Path>,
    program_and_arguments: &[String],
) -> Command {
    let groups: Vec<_> = groups.iter().map(|group| group.to_string_lossy()).collect();
    let mut command = Command::new("sh");
    command.args(["-c", ENTER, "enter", &groups.join(" ")]);
    if let Some(cpu) = cpu {
        command.args(["taskset", "--cpu-list", &cpu.to_string()]);
    }
    if let Some(writable) = writable {
        let namespace = ["unshare", "--mount", "--propagation", "private"];
        command.args(namespace);
        command.args(["sh", "-c", READ_ONLY, "read-only"]);
        command.arg(writable);
    }
    command.args([
        "setpriv",
        &format!("--reuid={NOBODY}"),
        &format!("--regid={NOBODY}"),
    ]);
    command.args(["--clear-groups", "--no-new-privs", "--pdeathsig=KILL", "--"]);
    command.args(program_and_arguments);
    command
}
