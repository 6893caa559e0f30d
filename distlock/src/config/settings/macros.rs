//! What the rows of the table of settings become.

/// Makes of the rows the struct [`Settings`](crate::Settings), with one field for each, and what reads and writes them as texts.
///
/// A row is `word: type, "what it sets, in one line";`. `word or short` has a second word. `word by method` is set by a method of
/// another name. A comment of the row is a part of the field's documentation.
macro_rules! settings {
    (
        $(#[$of_settings:meta])*
        every_client {
            $( $(#[$note:meta])* $word:ident $(or $short:ident)? $(by $method:ident)?: $type:ty, $about:literal; )*
        }
        clients_of_servers {
            $( $(#[$net_note:meta])* $net:ident $(or $net_short:ident)? $(by $net_method:ident)?: $net_type:ty,
                $net_about:literal; )*
        }
    ) => {
        $(#[$of_settings])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $(
                #[doc = settings!(@doc $about, $word $(, $method)?)]
                $(#[$note])*
                pub $word: Option<$type>,
            )*
            $(
                #[doc = settings!(@doc $net_about, $net $(, $net_method)?)]
                $(#[$net_note])*
                #[cfg(feature = "redis")]
                #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
                pub $net: Option<$net_type>,
            )*
        }

        impl Settings {
            /// Takes the settings that `later` has, instead of these.
            pub(crate) fn overlay(&mut self, later: Self) {
                $( replace(&mut self.$word, later.$word); )*
                $( #[cfg(feature = "redis")] replace(&mut self.$net, later.$net); )*
            }
        }

        /// One row for each setting.
        const TABLE: &[SettingWord] = &[
            $( settings!(@row $word, [$($short)?], $type, $about), )*
            $( #[cfg(feature = "redis")] settings!(@row $net, [$($net_short)?], $net_type, $net_about), )*
        ];

        /// The builder's method for each setting.
        #[cfg(test)]
        const METHODS: &[(&str, &str)] = &[
            $( (stringify!($word), settings!(@method $word $(, $method)?)), )*
            $( #[cfg(feature = "redis")] (stringify!($net), settings!(@method $net $(, $net_method)?)), )*
        ];
    };
    (@doc $about:literal, $word:ident $(, $method:ident)?) => {
        concat!($about, ". See [`Builder::", settings!(@method $word $(, $method)?), "`](crate::Builder::",
            settings!(@method $word $(, $method)?), ").")
    };
    (@method $word:ident) => { stringify!($word) };
    (@method $word:ident, $method:ident) => { stringify!($method) };
    (@row $word:ident, [$($short:ident)?], $type:ty, $about:literal) => {
        SettingWord {
            word: stringify!($word),
            short: settings!(@short $($short)?),
            value: <$type as Value>::SHAPE,
            about: $about,
            expected: <$type as Value>::EXPECTED,
            read: |settings, text| {
                settings.$word = Some(<$type as Value>::read(text)?);
                Ok(())
            },
            text: |settings| settings.$word.as_ref().map(Value::text),
        }
    };
    (@short) => { None };
    (@short $short:ident) => { Some(stringify!($short)) };
}
