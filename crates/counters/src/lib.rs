//! Tables of counters. A counter is declared once, beside its field or its reason, with its unit and its meaning.
//! Status, documents and tests take the counters from these tables.

/// The things that a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Attempts,
    Bytes,
    Connections,
    Datagrams,
    Engines,
    Errors,
    Events,
    Fragments,
    Frames,
    Lines,
    Messages,
    Packets,
    Paths,
    Reads,
    Sas,
    Writes,
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Bytes => "bytes",
            Self::Connections => "connections",
            Self::Datagrams => "datagrams",
            Self::Engines => "engines",
            Self::Errors => "errors",
            Self::Events => "events",
            Self::Fragments => "fragments",
            Self::Frames => "frames",
            Self::Lines => "lines",
            Self::Messages => "messages",
            Self::Packets => "packets",
            Self::Paths => "paths",
            Self::Reads => "reads",
            Self::Sas => "SAs",
            Self::Writes => "writes",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    name: &'static str,
    pub unit: Unit,
    help: &'static str,
}

impl Counter {
    pub const fn new(name: &'static str, unit: Unit, help: &'static str) -> Self {
        Self { name, unit, help }
    }

    /// The name in status and metrics. It has hyphens between its words.
    pub fn name(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The meaning of the counter, in a sentence or two.
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }
}

/// Counters that status shows in one section.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The sections of status that have these counters. A dot leads into a section.
    pub sections: &'static [&'static str],
    /// The label whose values the counters' names are, if the counters are cases of one count.
    pub label: Option<&'static str>,
    pub help: &'static str,
    pub counters: &'static [Counter],
}

/// Makes the table of counters out of `/// meaning`, `name: Unit,` each.
#[macro_export]
macro_rules! table {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:ident,)*) => {
        &[$($crate::Counter::new(stringify!($name), $crate::Unit::$unit, concat!($($help),+)),)*]
    };
}

/// Declares an enumeration of reasons, each of which has one counter: `Variant = "name";`.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        pub enum $reasons:ident: $unit:ident {
            $($(#[doc = $help:literal])+ $variant:ident = $name:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $reasons { $($(#[doc = $help])+ $variant,)* }

        impl $reasons {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The counters, in the order of [`Self::ALL`].
            pub const COUNTERS: &'static [$crate::Counter] =
                &[$($crate::Counter::new($name, $crate::Unit::$unit, concat!($($help),+)),)*];

            /// The stable name in logs, status and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}
