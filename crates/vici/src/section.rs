//! A section is an ordered list of keys, each with a value, a list or another section. A whole vici message is one
//! section.

use std::fmt;

use super::Malformed;

/// The content of one key.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes, mostly text.
    Data(Vec<u8>),
    List(Vec<Vec<u8>>),
    Section(Section),
}

/// Keys in order, each with its content. A name may come more than once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Section {
    entries: Vec<(String, Value)>,
}

impl Value {
    /// Makes a value with this text, cut at 65535 bytes.
    pub(crate) fn data(value: impl fmt::Display) -> Self {
        Self::Data(text(value))
    }
}

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

const DEPTH_MAX: usize = 16;

impl Section {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key with a value. Names are cut at 255 bytes, values at 65535, the limits of the encoding.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> &mut Self {
        self.push(key, Value::data(value))
    }

    /// Adds a list.
    pub fn list<I>(&mut self, key: &str, items: I) -> &mut Self
    where
        I: IntoIterator,
        I::Item: fmt::Display,
    {
        let items = items.into_iter().map(text).collect();
        self.push(key, Value::List(items))
    }

    /// Adds a section.
    pub fn section(&mut self, name: &str, section: Section) -> &mut Self {
        self.push(name, Value::Section(section))
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, key: &str, value: Value) -> &mut Self {
        let mut end = key.len().min(usize::from(u8::MAX));
        while !key.is_char_boundary(end) {
            end -= 1;
        }
        self.entries.push((key[..end].to_owned(), value));
        self
    }

    /// Returns the first entry of that name.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Returns the text of a key, or `None` if the key is missing or holds no UTF-8 text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Data(data) => std::str::from_utf8(data).ok(),
            _ => None,
        }
    }

    pub fn sub(&self, name: &str) -> Option<&Section> {
        match self.get(name)? {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }

    pub fn sub_mut(&mut self, name: &str) -> Option<&mut Section> {
        let mut entries = self.entries.iter_mut();
        match entries.find(|(known, _)| known == name)? {
            (_, Value::Section(section)) => Some(section),
            _ => None,
        }
    }

    /// Removes the sections that are not to stay. Values and lists stay.
    pub fn retain_sections(&mut self, mut keep: impl FnMut(&str, &mut Section) -> bool) {
        self.entries.retain_mut(|(name, value)| match value {
            Value::Section(section) => keep(name, section),
            _ => true,
        });
    }

    /// Returns the items of a list that are text.
    pub fn items(&self, key: &str) -> impl Iterator<Item = &str> {
        let items = match self.get(key) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        items
            .iter()
            .filter_map(|item| std::str::from_utf8(item).ok())
    }

    /// Returns the sections in order.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.entries.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((name.as_str(), section)),
            _ => None,
        })
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.entries {
            match value {
                Value::Data(data) => {
                    put_name(out, KEY_VALUE, name);
                    put_data(out, data);
                }
                Value::List(items) => {
                    put_name(out, LIST_START, name);
                    for item in items {
                        out.push(LIST_ITEM);
                        put_data(out, item);
                    }
                    out.push(LIST_END);
                }
                Value::Section(section) => {
                    put_name(out, SECTION_START, name);
                    section.encode(out);
                    out.push(SECTION_END);
                }
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes };
        // Open sections, each with the name under which it goes into the one before it.
        let mut open = vec![(String::new(), Section::new())];
        while let Some(element) = reader.byte() {
            let depth = open.len();
            let Some((_, inner)) = open.last_mut() else {
                return Err(Malformed::Nesting);
            };
            match element {
                SECTION_START if depth > DEPTH_MAX => return Err(Malformed::Depth),
                SECTION_START => open.push((reader.name()?, Section::new())),
                SECTION_END => match open.pop() {
                    Some((name, section)) => match open.last_mut() {
                        Some((_, outer)) => outer.entries.push((name, Value::Section(section))),
                        None => return Err(Malformed::Nesting),
                    },
                    None => return Err(Malformed::Nesting),
                },
                KEY_VALUE => {
                    let name = reader.name()?;
                    inner
                        .entries
                        .push((name, Value::Data(reader.data()?.to_vec())));
                }
                LIST_START => {
                    let name = reader.name()?;
                    inner.entries.push((name, Value::List(reader.list()?)));
                }
                other => return Err(Malformed::Element(other)),
            }
        }
        match open.pop() {
            Some((_, message)) if open.is_empty() => Ok(message),
            _ => Err(Malformed::Nesting),
        }
    }
}

/// Returns the bytes of a value, cut at the 65535 bytes that the encoding has room for.
fn text(value: impl fmt::Display) -> Vec<u8> {
    let mut data = value.to_string().into_bytes();
    data.truncate(usize::from(u16::MAX));
    data
}

fn put_name(out: &mut Vec<u8>, element: u8, name: &str) {
    out.push(element);
    out.push(name.len() as u8); // `push` keeps names within 255 bytes
    out.extend_from_slice(name.as_bytes());
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(&(data.len() as u16).to_be_bytes()); // `text` keeps data within 65535 bytes
    out.extend_from_slice(data);
}

pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(Malformed::Truncated)?;
        self.bytes = rest;
        Ok(head)
    }

    pub fn name(&mut self) -> Result<String, Malformed> {
        let len = self.byte().ok_or(Malformed::Truncated)?;
        let name = self.take(len.into())?;
        std::str::from_utf8(name)
            .map(str::to_owned)
            .map_err(|_| Malformed::Name)
    }

    fn data(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self
            .take(2)?
            .iter()
            .fold(0, |len, &byte| len << 8 | usize::from(byte));
        self.take(len)
    }

    fn list(&mut self) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut items = Vec::new();
        loop {
            match self.byte().ok_or(Malformed::Nesting)? {
                LIST_ITEM => items.push(self.data()?.to_vec()),
                LIST_END => return Ok(items),
                other => return Err(Malformed::Element(other)),
            }
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(data) => fmt::Debug::fmt(&String::from_utf8_lossy(data), f),
            Self::List(items) => f
                .debug_list()
                .entries(items.iter().map(|item| String::from_utf8_lossy(item)))
                .finish(),
            Self::Section(section) => fmt::Debug::fmt(section, f),
        }
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

/// Writes a section as JSON: text, arrays and objects. A name that comes twice keeps its last value.
impl serde::Serialize for Section {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.entries())
    }
}

impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Data(data) => serializer.serialize_str(&String::from_utf8_lossy(data)),
            Self::List(items) => {
                serializer.collect_seq(items.iter().map(|item| String::from_utf8_lossy(item)))
            }
            Self::Section(section) => section.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Section {
        let mut inner = Section::new();
        inner
            .set("state", "INSTALLED")
            .list("local-ts", ["10.0.0.0/16", "10.1.0.0/16"]);
        let mut message = Section::new();
        message.set("version", 2).section("child-sas", inner);
        message
    }

    #[test]
    fn round_trip() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(Section::decode(&bytes), Ok(sample()));
        assert_eq!(sample().text("version"), Some("2"));
        let child = sample().sub("child-sas").cloned().unwrap();
        assert_eq!(
            child.items("local-ts").collect::<Vec<_>>(),
            ["10.0.0.0/16", "10.1.0.0/16"]
        );
    }

    #[test]
    fn every_cut_is_refused_or_shorter() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        for len in 0..bytes.len() {
            assert_ne!(Section::decode(&bytes[..len]), Ok(sample()), "{len}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(
            Section::decode(&[SECTION_START, 0].repeat(1000)),
            Err(Malformed::Depth)
        );
        assert_eq!(Section::decode(&[SECTION_END]), Err(Malformed::Nesting));
        assert_eq!(
            Section::decode(&[SECTION_START, 0]),
            Err(Malformed::Nesting)
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(0u8..8, 0..64)) {
            if let Ok(message) = Section::decode(&bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
