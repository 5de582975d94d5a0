//! Configurations for serde: a map from the names of options, with underscores, to their values as text, of those that
//! have another value than the default.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ClientConfig, Config, LinkConfig, PublisherConfig, StoreConfig, SubscriberConfig, TargetConfig};

/// Reads a map of options.
struct Options<C>(PhantomData<C>);

impl<'de, C: Config> Visitor<'de> for Options<C> {
    type Value = C;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "options of {} by their names", C::SUBJECT)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<C, M::Error> {
        let mut config = C::default();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            config.set(&name, &value).map_err(M::Error::custom)?;
        }
        Ok(config)
    }
}

macro_rules! configurations {
    ($($config:ident)+) => {$(
        impl Serialize for $config {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                for row in Self::rows().iter().filter(|row| row.is_set(self)) {
                    // An empty list is a value, too.
                    map.serialize_entry(&row.info.field(), &(row.get)(self).unwrap_or_default())?;
                }
                map.end()
            }
        }

        impl<'de> Deserialize<'de> for $config {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Options(PhantomData))
            }
        }
    )+};
}

configurations! { TargetConfig LinkConfig ClientConfig StoreConfig PublisherConfig SubscriberConfig }
