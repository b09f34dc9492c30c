//! Reading structures from JSON: from objects, and from nothing else.
//!
//! What serde derives for a structure also takes a list of its members' values, and for a word of a closed
//! vocabulary also `{"WORD": null}`, so that the same fact would have a second spelling that other readers
//! refuse. Here every structure, at any depth, is asked for as a map, and every such word as a string.

use core::fmt;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// Reads a value from JSON; members are told apart by their names only.
pub fn typed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Strict(&mut source))?;
    source.end()?;
    Ok(value)
}

/// As [`typed`], from a value that was read before.
pub(crate) fn typed_value<T: for<'a> Deserialize<'a>>(
    value: serde_json::Value,
) -> Result<T, serde_json::Error> {
    T::deserialize(Strict(value))
}

/// A source of values that gives no list for a structure.
struct Strict<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Within(visitor))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Within(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Within(visitor))
    }

    /// A variant is its name and nothing else: serde_json would take `{"NAME": null}` as well.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_str(Named(visitor))
    }

    /// Not looked into: what we have of this kind is raw JSON, which serde_json knows by its name.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

/// A visitor whose inner values come out of [`Strict`] too.
struct Within<V>(V);

macro_rules! forward {
    ($($name:ident: $kind:ty,)*) => {
        $(fn $name<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.0.$name(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Within<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    forward! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
        visit_borrowed_str: &'de str,
        visit_string: alloc::string::String,
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(inner))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(members))
    }
}

/// The visitor of a variant, which is given its name.
struct Named<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Named<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a word as a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        self.0.visit_enum(name.into_deserializer())
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Within(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Within(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Within<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    struct Inner {
        a: u64,
        #[serde(default)]
        b: Option<bool>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Outer<'a> {
        inner: Inner,
        many: Vec<Inner>,
        maybe: Option<Inner>,
        #[serde(borrow)]
        raw: &'a serde_json::value::RawValue,
    }

    #[test]
    fn a_list_is_no_structure_at_any_depth() {
        let good = r#"{"inner":{"a":1},"many":[{"a":2,"b":true}],"maybe":null,"raw":[1, 2]}"#;
        let outer: Outer<'_> = typed(good.as_bytes()).unwrap();
        assert_eq!(outer.raw.get(), "[1, 2]");
        assert_eq!((outer.inner.a, outer.maybe), (1, None));
        assert_eq!(
            outer.many,
            [Inner {
                a: 2,
                b: Some(true)
            }]
        );
        for bad in [
            r#"[{"a":1},[],null,1]"#,
            r#"{"inner":[1],"many":[],"maybe":null,"raw":1}"#,
            r#"{"inner":{"a":1},"many":[[2,true]],"maybe":null,"raw":1}"#,
            r#"{"inner":{"a":1},"many":[],"maybe":[1,true],"raw":1}"#,
            r#"{"inner":{"a":1},"many":[],"maybe":null,"raw":1} 2"#,
        ] {
            assert!(typed::<Outer<'_>>(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(
            typed_value::<Inner>(serde_json::json!({"a": 1})).unwrap().a,
            1
        );
        assert!(typed_value::<Inner>(serde_json::json!([1, true])).is_err());
    }

    #[test]
    fn a_word_is_a_string_and_no_structure() {
        #[derive(Debug, serde::Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        #[serde(rename_all = "snake_case")]
        enum Word {
            One,
        }
        type Words = alloc::collections::BTreeMap<Word, Option<Word>>;
        let good = br#"{"one":"one"}"#;
        assert_eq!(typed::<Words>(good).unwrap()[&Word::One], Some(Word::One));
        assert_eq!(
            typed_value::<Word>(serde_json::json!("one")).unwrap(),
            Word::One
        );
        assert!(typed::<Words>(br#"{"one":{"one":null}}"#).is_err());
        assert!(typed::<Words>(br#"{"one":"two"}"#).is_err());
        assert!(typed::<Word>(br#"{"one":null}"#).is_err());
        assert!(typed::<Word>(b"0").is_err());
        assert!(typed_value::<Word>(serde_json::json!({"one": null})).is_err());
    }
}
