//! Where the key of a request comes from: templates, headers, and the body.

mod from_body;
#[cfg(feature = "json")]
mod json;
mod template;
mod template_text;
