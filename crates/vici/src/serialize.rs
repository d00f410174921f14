//! Sections from any structure that `serde` can serialize, so that one description of the gateway's state gives vici's
//! answers and, from them, JSON.
//!
//! | serde | vici |
//! |---|---|
//! | struct, map | section |
//! | sequence of scalars | list |
//! | text, number, address | value |
//! | bool | value, `yes` or `no` |
//! | `None` | no entry |
//!
//! Sequences of sections, byte strings and enums with content have no form in vici and are refused.

use std::fmt;

use serde::ser::{self, Impossible, Serialize};

use super::section::{Section, Value};

/// The structure has no form in vici. Its author has made a mistake: no input can cause this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer has no form in vici: {0}")]
pub struct Unrepresentable(String);

impl ser::Error for Unrepresentable {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

impl Section {
    /// Returns the section that has the entries of a struct or a map.
    pub fn of(content: &impl Serialize) -> Result<Self, Unrepresentable> {
        match content.serialize(ValueSerializer)? {
            Some(Value::Section(section)) => Ok(section),
            _ => Err(unsupported("a value without a name")),
        }
    }
}

fn unsupported(what: &str) -> Unrepresentable {
    Unrepresentable(what.to_owned())
}

/// Serializes one value. The result is `None` if the entry is to be left out.
#[derive(Clone, Copy, Debug)]
struct ValueSerializer;

/// Methods of `Serializer` for types that are written as their text.
macro_rules! as_text {
    ($($method:ident: $type:ty,)*) => {
        $(
            fn $method(self, value: $type) -> Result<Self::Ok, Self::Error> {
                Ok(Some(Value::data(value)))
            }
        )*
    };
}

impl ser::Serializer for ValueSerializer {
    type Ok = Option<Value>;
    type Error = Unrepresentable;
    type SerializeSeq = ListSerializer;
    type SerializeTuple = ListSerializer;
    type SerializeTupleStruct = Impossible<Self::Ok, Self::Error>;
    type SerializeTupleVariant = Impossible<Self::Ok, Self::Error>;
    type SerializeMap = SectionSerializer;
    type SerializeStruct = SectionSerializer;
    type SerializeStructVariant = Impossible<Self::Ok, Self::Error>;

    as_text! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_f32: f32,
        serialize_f64: f64,
        serialize_char: char,
        serialize_str: &str,
    }

    fn serialize_bool(self, value: bool) -> Result<Self::Ok, Self::Error> {
        Ok(Some(Value::data(if value { "yes" } else { "no" })))
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<Self::Ok, Self::Error> {
        Err(unsupported("bytes"))
    }

    fn serialize_none(self) -> Result<Self::Ok, Self::Error> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, Self::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Self::Ok, Self::Error> {
        Ok(None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Self::Ok, Self::Error> {
        Ok(None)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Self::Ok, Self::Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, Self::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, Self::Error> {
        Err(unsupported("an enum with content"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Self::Error> {
        Ok(ListSerializer::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Self::Error> {
        Ok(ListSerializer::default())
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Self::Error> {
        Err(unsupported("a tuple struct"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Self::Error> {
        Err(unsupported("an enum with content"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Self::Error> {
        Ok(SectionSerializer::default())
    }

    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, Self::Error> {
        Ok(SectionSerializer::default())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Self::Error> {
        Err(unsupported("an enum with content"))
    }
}

/// Collects the items of a list.
#[derive(Debug, Default)]
struct ListSerializer {
    items: Vec<Vec<u8>>,
}

impl ListSerializer {
    fn push(&mut self, item: &(impl Serialize + ?Sized)) -> Result<(), Unrepresentable> {
        match item.serialize(ValueSerializer)? {
            Some(Value::Data(data)) => self.items.push(data),
            _ => return Err(unsupported("a list of something else than values")),
        }
        Ok(())
    }
}

impl ser::SerializeSeq for ListSerializer {
    type Ok = Option<Value>;
    type Error = Unrepresentable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Self::Error> {
        self.push(item)
    }

    fn end(self) -> Result<Self::Ok, Self::Error> {
        Ok(Some(Value::List(self.items)))
    }
}

impl ser::SerializeTuple for ListSerializer {
    type Ok = Option<Value>;
    type Error = Unrepresentable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Self::Error> {
        self.push(item)
    }

    fn end(self) -> Result<Self::Ok, Self::Error> {
        Ok(Some(Value::List(self.items)))
    }
}

/// Collects the entries of a section.
#[derive(Debug, Default)]
struct SectionSerializer {
    section: Section,
    /// The key whose value comes next.
    key: String,
}

impl SectionSerializer {
    fn push(
        &mut self,
        key: &str,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Unrepresentable> {
        if let Some(value) = value.serialize(ValueSerializer)? {
            self.section.push(key, value);
        }
        Ok(())
    }
}

impl ser::SerializeMap for SectionSerializer {
    type Ok = Option<Value>;
    type Error = Unrepresentable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Self::Error> {
        match key.serialize(ValueSerializer)? {
            Some(Value::Data(name)) => self.key = String::from_utf8_lossy(&name).into_owned(),
            _ => return Err(unsupported("a key that is no text")),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        let key = std::mem::take(&mut self.key);
        self.push(&key, value)
    }

    fn end(self) -> Result<Self::Ok, Self::Error> {
        Ok(Some(Value::Section(self.section)))
    }
}

impl ser::SerializeStruct for SectionSerializer {
    type Ok = Option<Value>;
    type Error = Unrepresentable;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Self::Error> {
        self.push(key, value)
    }

    fn end(self) -> Result<Self::Ok, Self::Error> {
        Ok(Some(Value::Section(self.section)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    struct Sample {
        local_host: IpAddr,
        is_up: bool,
        spi: Option<u32>,
        tasks_active: Vec<&'static str>,
        drops: BTreeMap<String, u64>,
        #[serde(flatten)]
        rest: Rest,
    }

    #[derive(Serialize)]
    struct Rest {
        total: usize,
    }

    #[test]
    fn a_structure_becomes_a_section() {
        let section = Section::of(&Sample {
            local_host: "192.0.2.1".parse().unwrap(),
            is_up: true,
            spi: None,
            tasks_active: vec!["CHILD_REKEY"],
            drops: BTreeMap::from([("no-sa".to_owned(), 3)]),
            rest: Rest { total: 2 },
        })
        .unwrap();
        let (mut expected, mut drops) = (Section::new(), Section::new());
        drops.set("no-sa", 3);
        expected
            .set("local-host", "192.0.2.1")
            .set("is-up", "yes")
            .list("tasks-active", ["CHILD_REKEY"])
            .section("drops", drops)
            .set("total", 2);
        assert_eq!(section, expected);
    }

    #[test]
    fn what_vici_cannot_say_is_refused() {
        assert!(Section::of(&7).is_err());
        let lists = BTreeMap::from([("lists", vec![vec![1]])]);
        assert!(Section::of(&lists).is_err());
        let sections = BTreeMap::from([("sections", vec![BTreeMap::from([("a", 1)])])]);
        assert!(Section::of(&sections).is_err());
    }
}
