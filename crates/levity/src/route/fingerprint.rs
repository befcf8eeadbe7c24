//! The rules of a location, to compare with those of others of its site.

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// A file, to be sent.
    File,
    /// A script, to be run.
    Script,
}

/// How many kinds of gates there are.
pub const GATES: usize = 6;

/// The rules of a location, each as a number that equal rules of its site share. It says nothing about how content is read, or
/// which headers it gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Only rewrites and applications lead there.
    pub internal: bool,
    /// Everyone is refused, in this way; 0 for a location that refuses nobody.
    pub refusal: usize,
    /// Who is let in by each gate; 0 for a gate that it has not.
    pub gates: [usize; GATES],
    /// Links that leave the root are not followed.
    pub has_strict_links: bool,
    /// Which names are sent.
    pub names: usize,
    /// Where its files are; 0 for nowhere.
    pub root: usize,
    /// The upstream that answers to the names of files in their place; 0 if files do, or something that keeps nobody from them, 1 if
    /// nothing does.
    pub application: usize,
    /// The upstream that runs scripts; 0 for a location that knows of none, 1 if it does not run them.
    pub scripts: usize,
    /// How many requests are let in.
    pub limits: usize,
    /// What may be written.
    pub upload: usize,
}

impl Fingerprint {
    /// The first rule, besides names and limits, by which a location with the rules `other` may keep somebody from what a location
    /// with these would give; in words of the configuration.
    ///
    /// What answers counts only where both have the same files. A redirect keeps nobody from a file: it often leads from the name of
    /// an index to its folder.
    pub fn added_by(&self, other: &Self, sought: Sought) -> Option<&'static str> {
        let has_other_answer = self.root == other.root
            && match sought {
                Sought::File => other.application != 0 && other.application != self.application,
                Sought::Script => self.runs_otherwise(other),
            };
        if other.internal && !self.internal {
            Some("`internal`")
        } else if other.refusal != 0 && other.refusal != self.refusal {
            Some("a refusal")
        } else if self.has_fewer_gates(other) {
            Some("who is let in")
        } else if other.has_strict_links && !self.has_strict_links {
            Some("`symlinks`")
        } else if has_other_answer {
            Some("what answers")
        } else {
            None
        }
    }

    /// Whether whoever may list a folder here may know the names of what is at `other`.
    pub fn may_list(&self, other: &Self) -> bool {
        (self.internal || !other.internal) && other.refusal == 0 && !self.has_fewer_gates(other)
    }

    fn has_fewer_gates(&self, other: &Self) -> bool {
        let mut gates = self.gates.iter().zip(&other.gates);
        gates.any(|(own, other)| *other != 0 && own != other)
    }

    fn runs_otherwise(&self, other: &Self) -> bool {
        match other.scripts {
            0 => other.application > 1 && other.application != self.scripts,
            of_other => of_other != self.scripts,
        }
    }
}

/// When a site has to be asked which rules are those of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Never: all its locations have the same.
    Never,
    /// Once for each name: its routes look at paths only.
    ByName,
    /// By each request: routes have conditions.
    ByRequest,
}
