//! Results: JSON with every pass, a Markdown table, and a picture.

pub mod bar;
pub mod curve;
pub mod kept;
pub mod picture;
pub mod spread;
pub mod table;

use crate::failure::{Context, Result};
use crate::machine::Machine;
use serde::Serialize;
use std::fs;
use std::path::Path;
use table::Table;

/// A finished scenario.
pub struct Outcome {
    /// Its name as a part of file names, for example `huc`.
    pub name: String,
    /// The caption: what the table shows.
    pub caption: String,
    /// Medians and spreads.
    pub table: Table,
    /// Every pass of every row.
    pub passes: serde_json::Value,
    /// The picture, if the scenario has one.
    pub picture: Option<String>,
}

#[derive(Serialize)]
struct Record<'a> {
    name: &'a str,
    machine: &'a Machine,
    options: &'a serde_json::Value,
    rows: &'a serde_json::Value,
}

impl Outcome {
    /// The table with its caption and circumstances.
    #[must_use]
    pub fn markdown(&self, machine: &Machine) -> String {
        format!(
            "# {}\n\n{}\n\n{}\n{}\n",
            self.name,
            self.caption,
            self.table.markdown(),
            machine.sentence()
        )
    }

    /// Writes `DATE-COMMIT-NAME.json`, `.md` and, where there is a picture, `.svg` into `dir`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, dir: &Path, machine: &Machine, options: &serde_json::Value) -> Result<()> {
        fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        let stem = format!("{}-{}-{}", machine.date, machine.commit, self.name);
        let record = Record {
            name: &self.name,
            machine,
            options,
            rows: &self.passes,
        };
        let json = serde_json::to_string_pretty(&record).context(|| "result".into())?;
        write(&dir.join(format!("{stem}.json")), &json)?;
        write(&dir.join(format!("{stem}.md")), &self.markdown(machine))?;
        self.picture
            .as_ref()
            .map_or(Ok(()), |svg| write(&dir.join(format!("{stem}.svg")), svg))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).context(|| format!("write {}", path.display()))
}
