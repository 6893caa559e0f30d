//! Settings from a file: a map from the words of the table to their values.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::table::{SettingWord, Settings};

impl<'de> serde::Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMap)
    }
}

struct OfMap;

impl<'de> Visitor<'de> for OfMap {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings of a distlock client")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
        let mut settings = Settings::default();
        let mut seen = Vec::new();
        while let Some(word) = map.next_key::<String>()? {
            let Some(row) = Settings::row(&word) else {
                let _value: IgnoredAny = map.next_value()?;
                let words = Settings::words()
                    .iter()
                    .map(|row| format!("`{}`", row.word));
                let words: Vec<_> = words.collect();
                let words = words.join(", ");
                return Err(A::Error::custom(format!(
                    "unknown field `{word}`, expected one of {words}"
                )));
            };
            if seen.contains(&row.word) {
                return Err(A::Error::duplicate_field(row.word));
            }
            seen.push(row.word);
            map.next_value_seed(OfRow(row, &mut settings))?;
        }
        Ok(settings)
    }
}

/// Reads the value of one row. Nothing (`null`) leaves the setting as it is.
struct OfRow<'a>(&'static SettingWord, &'a mut Settings);

impl OfRow<'_> {
    fn set<E: Error>(self, text: &str) -> Result<(), E> {
        let Self(row, settings) = self;
        let read = (row.read)(settings, text);
        read.map_err(|wrong| E::custom(format!("{}: {wrong}", row.word)))
    }
}

impl<'de> DeserializeSeed<'de> for OfRow<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OfRow<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value for `{}`, {}", self.0.word, self.0.value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.set(text)
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<(), E> {
        self.set(if is_on { "true" } else { "false" })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        // As in a URL, so that both have the same limits and errors.
        self.set(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.set(&number.to_string())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}
