//! The control groups of this process, whose limits hold for it.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the groups that limit the use of `controller` by this process: its own and those above. Some may not
/// exist. Reads `/proc`: not for event loops.
pub(super) fn of_process(controller: &str) -> Vec<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    folders(&groups, controller)
}

/// The folders of the groups in `groups` (`/proc/self/cgroup`) and those above them.
pub(super) fn folders(groups: &str, controller: &str) -> Vec<PathBuf> {
    let groups = groups.lines().filter_map(|line| {
        // cgroups(7): ID, controllers and path; version 2 has no controllers here.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mounts = match controllers {
            "" => vec!["/sys/fs/cgroup".into(), "/sys/fs/cgroup/unified".into()],
            _ if controllers.split(',').any(|name| name == controller) => vec![
                format!("/sys/fs/cgroup/{controller}"),
                format!("/sys/fs/cgroup/{controllers}"),
            ],
            _ => return None,
        };
        Some((mounts, path.trim_start_matches('/')))
    });
    let folders = groups.flat_map(|(mounts, path)| {
        let paths = Path::new(path).ancestors();
        paths.flat_map(move |path| {
            mounts
                .clone()
                .into_iter()
                .map(move |mount| Path::new(&mount).join(path))
        })
    });
    folders.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_limited_by_those_above() {
        let text = "5:cpu,cpuacct:/a/b\n4:memory:/c\n0::/d\nnonsense\n";
        let folders = |controller| {
            let all = folders(text, controller).into_iter();
            all.map(|path| path.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            folders("memory"),
            [
                "/sys/fs/cgroup/memory/c",
                "/sys/fs/cgroup/memory/c",
                "/sys/fs/cgroup/memory/",
                "/sys/fs/cgroup/memory/",
                "/sys/fs/cgroup/d",
                "/sys/fs/cgroup/unified/d",
                "/sys/fs/cgroup/",
                "/sys/fs/cgroup/unified/",
            ]
        );
        let cpu = folders("cpu");
        assert!(cpu.contains(&"/sys/fs/cgroup/cpu,cpuacct/a".to_owned()));
        assert!(cpu.contains(&"/sys/fs/cgroup/cpu/a/b".to_owned()));
    }
}
