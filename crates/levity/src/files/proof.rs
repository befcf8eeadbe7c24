//! What a lookup has found out about the rules at the name that it has found.

/// Whether what lies at a name asks for more than the location that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It does not, whatever the request.
    Same,
    /// It does, whatever the request.
    Other,
    /// That depends on the request.
    PerRequest,
}

/// How a path has led to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Led {
    /// By this one of the index names of its folder; `None` if the path names the file.
    pub index: Option<usize>,
    /// What is known of the rules there.
    pub proof: Proof,
}

impl Led {
    /// To a file that no path names, such as one of a store.
    pub const NOWHERE: Self = Self {
        index: None,
        proof: Proof::Same,
    };
}
