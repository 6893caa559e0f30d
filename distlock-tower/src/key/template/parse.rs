//! How the text of a template is read.

use std::str::FromStr;

use super::{Piece, Placeholder, Template, TemplateError};
use crate::key::foreign;

impl FromStr for Template {
    type Err = TemplateError;

    /// Parses a template.
    ///
    /// # Errors
    /// [`TemplateError`] if the text is not a valid template.
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>']) {
            plain.push_str(&rest[..at]);
            let (mark, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(mark) {
                plain.push_str(mark);
                rest = after;
                continue;
            }
            if mark == ">" {
                return Err(TemplateError::Stray);
            }
            let (name, after) = after.split_once('>').ok_or(TemplateError::Unclosed)?;
            pieces.extend(text_piece(&mut plain));
            pieces.push(Piece::Placeholder(name.parse()?));
            rest = after;
        }
        plain.push_str(rest);
        pieces.extend(text_piece(&mut plain));
        if pieces.is_empty() {
            Err(TemplateError::Empty)
        } else {
            Self::of_pieces(pieces).check()
        }
    }
}

fn text_piece(plain: &mut String) -> Option<Piece> {
    let text = std::mem::take(plain);
    (!text.is_empty()).then_some(Piece::Text(text))
}

impl FromStr for Placeholder {
    type Err = TemplateError;

    fn from_str(name: &str) -> Result<Self, TemplateError> {
        let unknown = || TemplateError::Unknown(name.to_owned());
        match name.split_once('.') {
            None if name == "method" => Ok(Self::Method),
            Some(("uri", "path")) => Ok(Self::UriPath),
            Some((_, "")) => Err(unknown()),
            Some(("path", capture)) if cfg!(feature = "axum") => Ok(Self::Path(capture.to_owned())),
            Some(("query", parameter)) => Ok(Self::Query(parameter.to_owned())),
            Some(("header", header)) => header.parse().map(Self::Header).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl Template {
    /// Refuses a text that is the same for all requests, but does not look so.
    fn check(self) -> Result<Self, TemplateError> {
        let [Piece::Text(text)] = self.pieces.as_slice() else {
            return Ok(self);
        };
        match foreign::placeholder(text) {
            Some(found) => Err(TemplateError::NoPlaceholder {
                written: found.written.to_owned(),
                meant: meant(found.name),
            }),
            None => Ok(self),
        }
    }
}

/// The placeholder for what others write as `{name}`.
fn meant(name: &str) -> String {
    let name = name.trim_start_matches("self.");
    let is_ours = name.parse::<Placeholder>().is_ok();
    let source = if cfg!(feature = "axum") {
        "path"
    } else {
        "query"
    };
    match name {
        ours if is_ours => format!("<{ours}>"),
        "" => format!("<{source}.NAME>"),
        number if number.starts_with(|c: char| c.is_numeric()) => format!("<{source}.NAME>"),
        name => format!("<{source}.{name}>"),
    }
}
