//! The serialized form of what has a text: that text.

/// Serializes these types as their `Display`, and deserializes them by their `FromStr`.
macro_rules! serialized_as_text {
    ($($name:ty),+) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

serialized_as_text!(
    super::mode::Mode,
    super::owner::Owner,
    super::permit_id::PermitId
);

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::{Mode, Owner, PermitId};

    fn assert_is_its_text<T>(value: &T)
    where
        T: Serialize + DeserializeOwned + Display + Debug + PartialEq,
    {
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(json, format!("\"{value}\""));
        assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *value);
        let error = serde_json::from_str::<T>("\"something else\"").unwrap_err();
        assert!(error.to_string().contains("something else"), "{error}");
    }

    #[test]
    fn serialized_form_of_modes_owners_and_ids_of_permits_is_the_text() {
        for mode in Mode::ALL {
            assert_is_its_text(mode);
        }
        let owner: Owner = "01234567-89ab-8def-8123-456789abcdef:7".parse().unwrap();
        assert_is_its_text(&owner);
        assert_is_its_text(&PermitId::of(owner, 0));
    }
}
