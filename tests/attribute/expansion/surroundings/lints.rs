//! An annotated function has the lints of a plain one. An expectation that is not fulfilled is a warning, and clippy is run
//! with warnings denied.

use async_trait::async_trait;
use distlock::{Error, distributed_lock};

#[expect(dead_code)]
#[distributed_lock(key = "k")]
async fn never_called(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[expect(clippy::missing_errors_doc)]
#[distributed_lock(key = "k")]
pub async fn without_error_docs() -> Result<(), Error> {
    Ok(())
}

#[expect(clippy::missing_panics_doc, clippy::unwrap_used)]
#[distributed_lock(key = "k")]
pub async fn without_panic_docs(id: Option<u64>) -> Result<u64, Error> {
    Ok(id.unwrap())
}

#[expect(clippy::ptr_arg)]
#[distributed_lock(key = "k")]
pub async fn borrows_a_vector(ids: &Vec<u64>) -> Result<usize, Error> {
    Ok(ids.len())
}

#[expect(unused_braces, clippy::blocks_in_conditions)]
#[distributed_lock(key = "k")]
pub async fn braces(id: u64) -> Result<u64, Error> {
    #[rustfmt::skip]
    let odd = if { id % 2 == 1 } { id } else { 0 };
    Ok(odd)
}

#[expect(unused_variables)]
#[distributed_lock(key = "k")]
pub async fn forgotten_placeholder(id: u64) -> Result<(), Error> {
    Ok(())
}

#[expect(unused_variables)]
#[distributed_lock(key = "k")]
pub async fn forgotten_part((id, name): (u64, &str)) -> Result<u64, Error> {
    Ok(id)
}

/// The parameter is used on another platform, where the `cfg` keeps the statement.
#[distributed_lock(key = "k")]
pub async fn named_behind_a_cfg(
    #[expect(unused_variables)] who: String,
    #[expect(unused, reason = "no platform needs it")] mut by: String,
) -> Result<(), Error> {
    #[cfg(any())]
    drop((who, by));
    Ok(())
}

#[expect(unused_variables)]
#[distributed_lock(key = "k")]
pub async fn function_with_a_name_behind_a_cfg(who: String) -> Result<(), Error> {
    #[cfg(any())]
    drop(who);
    Ok(())
}

#[distributed_lock(key = "k")]
pub async fn body_with_a_name_behind_a_cfg(who: String) -> Result<(), Error> {
    #![cfg_attr(all(), expect(unused, reason = "another platform uses it"))]
    #[cfg(any())]
    drop(who);
    Ok(())
}

#[distributed_lock(key = "k")]
pub async fn forgotten_under_a_condition(
    #[cfg_attr(all(), expect(unused_variables))] id: u64,
    #[cfg_attr(all(), expect(unused_variables))] who: String,
) -> Result<(), Error> {
    #[cfg(any())]
    drop(who);
    Ok(())
}

pub struct Parts {
    pub id: u64,
    pub name: String,
    pub by: String,
}

#[distributed_lock(key = "k")]
pub async fn allowed_field(
    Parts {
        id,
        #[allow(unused_variables)]
        name,
        ..
    }: Parts,
) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "k:<id>")]
pub async fn expected_fields(
    (
        Parts {
            id,
            #[expect(unused_variables)]
            name,
            #[expect(unused)]
                by: who,
        },
        _,
    ): (Parts, u64),
) -> Result<(), Error> {
    #[cfg(any())]
    drop(who);
    Ok(())
}

#[distributed_lock(key = "k:<id>")]
pub async fn fields_under_conditions(
    Parts {
        id,
        #[cfg(any())]
        other,
        #[cfg(test)]
        name,
        ..
    }: Parts,
) -> Result<String, Error> {
    Ok(name)
}

#[async_trait]
pub trait Moves {
    async fn part(&self, parts: Parts) -> Result<(), Error>;
    async fn parts(&self, parts: Parts, #[cfg(any())] other: Parts) -> Result<u64, Error>;
}

/// `async_trait` writes the patterns into its block.
#[async_trait]
impl Moves for u64 {
    #[distributed_lock(key = "k:<id>")]
    async fn part(
        &self,
        Parts {
            id,
            #[expect(unused_variables)]
            name,
            #[cfg(any())]
            other,
            ..
        }: Parts,
    ) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "k:<id>")]
    async fn parts(
        &self,
        #[cfg(test)] Parts { id, .. }: Parts,
        #[cfg(any())] Parts { name, .. }: Parts,
    ) -> Result<u64, Error> {
        #[cfg(any())]
        drop(name);
        Ok(id)
    }
}

#[expect(unused_mut)]
#[distributed_lock(key = "k")]
pub async fn never_changed(mut id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "k")]
pub async fn changed(mut id: u64, (mut a, b): (u64, u64)) -> Result<u64, Error> {
    id += b;
    a += id;
    Ok(a)
}

#[expect(unused_variables)]
#[distributed_lock(key = "k")]
pub async fn forgotten_reference(name: &str) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k:<id>")]
pub async fn used_by_a_format(id: u64, width: usize, digits: usize) -> Result<String, Error> {
    Ok(format!("{id:>width$} {:.digits$}", 0.5))
}

#[distributed_lock(key = "k")]
pub async fn used_by_its_name_in_a_format(r#type: &str, r#in: usize) -> Result<String, Error> {
    Ok(format!("{type:>in$}"))
}

#[distributed_lock(key = "k:<id>")]
pub async fn used_by_the_key(id: u64) -> Result<(), Error> {
    Ok(())
}

#[expect(clippy::too_many_arguments)]
#[distributed_lock(key = "k")]
pub async fn many(_: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8, _: u8) -> Result<(), Error> {
    Ok(())
}
