//! The rules of a location, to compare with those of others of its site.

/// The rules of a location, each as a number that equal rules of its site have in common. It says nothing about how content is
/// read, or which headers it gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Only rewrites and applications lead there.
    pub internal: bool,
    /// Everyone is refused, in this way; 0 for a location that refuses nobody.
    pub refusal: usize,
    /// Who is let in; 0 for everyone.
    pub gates: usize,
    /// Which names and links are sent.
    pub names: usize,
    /// What answers to the name of a file.
    pub answer: usize,
    /// Which scripts are run, and by whom.
    pub scripts: usize,
    /// How many requests are let in.
    pub limits: usize,
    /// What may be written.
    pub upload: usize,
}

impl Fingerprint {
    /// The first rule in which `other` differs, by its key in the configuration.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let rules = [
            ("`internal`", self.internal == other.internal),
            ("`respond`", self.refusal == other.refusal),
            ("who is let in", self.gates == other.gates),
            ("`hide`, `show` or `symlinks`", self.names == other.names),
            ("what answers", self.answer == other.answer),
            ("which scripts are run", self.scripts == other.scripts),
            ("`limit`", self.limits == other.limits),
            ("`upload`", self.upload == other.upload),
        ];
        let mut differing = rules.into_iter().filter(|(_, is_same)| !is_same);
        differing.next().map(|(key, _)| key)
    }

    /// Whether whoever may list a folder here may know what is at `other`. To be told a name costs nothing there, and changes
    /// nothing.
    pub fn may_list(&self, other: &Self) -> bool {
        (self.internal || !other.internal)
            && other.refusal == 0
            && (other.gates == 0 || other.gates == self.gates)
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
