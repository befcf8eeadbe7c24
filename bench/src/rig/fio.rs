//! The speed of a disk, measured by fio.

use super::confine::tool;
use super::journal::run_quietly;
use crate::failure::{Context, Failure, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Reads of 4 KiB per second at random places, `depth` at a time, for one second.
///
/// # Errors
/// fio is missing or fails.
pub fn random_reads(device: &Path, depth: u32, cpu: Option<usize>) -> Result<f64> {
    let mut arguments = vec![
        "--name=random".to_owned(),
        "--rw=randread".into(),
        "--bs=4k".into(),
        "--ioengine=libaio".into(),
        "--runtime=1".into(),
    ];
    arguments.push(format!("--iodepth={depth}"));
    arguments.push(format!("--filename={}", device.display()));
    figure(&run(&arguments, cpu)?, "iops")
}

/// Bytes per second of one stream from each of these files. Each stream has one direct read of `chunk` bytes in
/// flight.
///
/// # Errors
/// fio is missing or fails.
pub fn streams(files: &[PathBuf], chunk: usize, seconds: f64, cpu: Option<usize>) -> Result<f64> {
    figure(
        &run(&stream_arguments(files, chunk, seconds), cpu)?,
        "bw_bytes",
    )
}

/// Options before the first job apply to all jobs.
fn stream_arguments(files: &[PathBuf], chunk: usize, seconds: f64) -> Vec<String> {
    let mut arguments = vec![
        "--rw=read".to_owned(),
        "--ioengine=psync".into(),
        "--thread".into(),
        "--group_reporting".into(),
        format!("--bs={chunk}"),
        format!("--runtime={}ms", (seconds * 1000.0).round()),
    ];
    for (number, file) in files.iter().enumerate() {
        arguments.push(format!("--name=stream{number}"));
        arguments.push(format!("--filename={}", file.display()));
    }
    arguments
}

/// Writes of 4 KiB per second, one after another at the end of a new file, with `fdatasync` after each `group` of them.
///
/// # Errors
/// fio is missing or fails.
pub fn durable_appends(file: &Path, group: usize, seconds: f64) -> Result<f64> {
    let mut fio = tool(None, "fio");
    fio.args(append_arguments(file, group, seconds));
    let report: Value =
        serde_json::from_str(&run_quietly(&mut fio)?).context(|| "read fio's report".into())?;
    report["jobs"][0]["write"]["iops"]
        .as_f64()
        .ok_or_else(|| Failure::new("fio reports no writes"))
}

/// Blocks are not reserved before: the file grows, as one that is appended to.
fn append_arguments(file: &Path, group: usize, seconds: f64) -> Vec<String> {
    vec![
        "--name=appends".to_owned(),
        "--rw=write".into(),
        "--bs=4k".into(),
        "--ioengine=psync".into(),
        "--fallocate=none".into(),
        "--size=4g".into(),
        format!("--fdatasync={group}"),
        format!("--runtime={}ms", (seconds * 1000.0).round()),
        format!("--filename={}", file.display()),
        "--output-format=json".into(),
    ]
}

fn run(arguments: &[String], cpu: Option<usize>) -> Result<Value> {
    let mut fio = tool(cpu, "fio");
    fio.args(["--readonly", "--direct=1", "--time_based"]);
    fio.arg("--output-format=json").args(arguments);
    let output = run_quietly(&mut fio)?;
    serde_json::from_str(&output).context(|| "read fio's report".into())
}

fn figure(report: &Value, name: &str) -> Result<f64> {
    report["jobs"][0]["read"][name]
        .as_f64()
        .ok_or_else(|| Failure::new(format!("fio reports no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_is_a_job_of_its_own() {
        let arguments = stream_arguments(&["/a".into(), "/b".into()], 65_536, 0.5);
        let first = arguments.iter().position(|word| word == "--name=stream0");
        let options = &arguments[..first.unwrap()];
        assert!(options.contains(&"--bs=65536".to_owned()));
        assert!(options.contains(&"--runtime=500ms".to_owned()));
        assert_eq!(
            arguments[options.len()..],
            [
                "--name=stream0",
                "--filename=/a",
                "--name=stream1",
                "--filename=/b"
            ]
        );
    }

    #[test]
    fn appends_are_synced_in_groups_and_end_with_the_time() {
        let arguments = append_arguments(Path::new("/f"), 32, 0.5);
        for word in [
            "--fdatasync=32",
            "--runtime=500ms",
            "--fallocate=none",
            "--filename=/f",
        ] {
            assert!(arguments.contains(&word.to_owned()), "{arguments:?}");
        }
        assert!(
            !arguments.contains(&"--time_based".to_owned()),
            "it would overwrite"
        );
    }

    #[test]
    fn a_report_without_the_figure_is_an_error() {
        let report = serde_json::json!({"jobs": [{"read": {"iops": 150.5}}]});
        assert_eq!(figure(&report, "iops").unwrap(), 150.5);
        assert!(figure(&report, "bw_bytes").is_err());
    }
}
