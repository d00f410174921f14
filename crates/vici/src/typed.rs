//! Messages whose content is JSON. vici knows only texts; JSON keeps numbers and truth values apart from them.
//!
//! A request with `form = json` is answered so. Other clients, `swanctl` among them, get sections.

use serde::Serialize;
use serde_json::Value as Json;

use super::section::{Section, Value};
use super::serialize::Unrepresentable;

/// The key under which the JSON is, as a list of pieces.
const KEY: &str = "json";
/// Longest piece. A value of vici has no more bytes.
const PIECE: usize = 65_535;

impl Section {
    /// Returns a request for an answer in JSON.
    pub fn json_wanted() -> Self {
        let mut message = Self::new();
        message.set("form", KEY);
        message
    }

    pub(crate) fn wants_json(&self) -> bool {
        self.text("form") == Some(KEY)
    }

    /// Returns the message whose content is this JSON.
    pub(crate) fn of_json(content: &impl Serialize) -> Result<Self, Unrepresentable> {
        let text = serde_json::to_vec(content).map_err(serde::ser::Error::custom)?;
        let pieces = text.chunks(PIECE).map(<[u8]>::to_vec).collect();
        let mut message = Self::new();
        message.push(KEY, Value::List(pieces));
        Ok(message)
    }

    /// Returns the content as JSON. A gateway that does not know `form` has sent a section, whose values are texts.
    pub fn to_json(&self) -> Result<Json, serde_json::Error> {
        match self.get(KEY) {
            Some(Value::List(pieces)) => serde_json::from_slice(&pieces.concat()),
            _ => serde_json::to_value(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_survive_in_pieces_of_any_number() {
        // The second byte of a letter begins the second piece.
        let long = "x".repeat(PIECE - "{\"long\":\"".len() - 1) + "\u{e4}" + &"y".repeat(PIECE);
        let content = serde_json::json!({ "long": long, "count": 7, "up": true });
        let message = Section::of_json(&content).unwrap();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let message = Section::decode(&bytes).unwrap();
        assert_eq!(message.to_json().unwrap(), content);
    }

    #[test]
    fn a_section_becomes_texts() {
        let mut message = Section::new();
        message.set("count", 7);
        let texts = serde_json::json!({ "count": "7" });
        assert_eq!(message.to_json().unwrap(), texts);
    }
}
