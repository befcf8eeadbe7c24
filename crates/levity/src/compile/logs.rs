//! The access logs of a configuration, by number.

use levity_config::{AccessLog, Config};

/// The access logs that are not off, each once.
pub fn logs(config: &Config) -> Vec<levity_config::Log> {
    let locations = config.sites.iter().flat_map(levity_config::Site::locations);
    let of_locations = locations.filter_map(|location| location.log.as_ref());
    let mut logs: Vec<levity_config::Log> = Vec::new();
    for log in [&config.log].into_iter().chain(of_locations) {
        if log.access != AccessLog::Off && !logs.contains(log) {
            logs.push(log.clone());
        }
    }
    logs
}

/// The place of `log` among `logs`; `None` if it is off.
pub fn log_number(logs: &[levity_config::Log], log: &levity_config::Log) -> Option<usize> {
    logs.iter().position(|known| known == log)
}
