//! How a client finds and keeps its servers: URLs, settings, names, passwords, and connections that fail.

mod announced;
mod changed_credentials;
mod checked;
mod connections;
mod credentials;
mod health;
mod lazy;
mod names;
mod no_effect;
mod probes;
mod seed_names;
mod settings;
mod unsupported;
