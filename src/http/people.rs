//! `/v1/people`: whom the pseudonyms in the ledger stand for.

use super::App;
use super::problem::Problem;
use super::request::Authenticated;
use crate::access::Role;
use crate::record::PersonRow;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

const NO_STORE: [(header::HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// A person in the ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct PersonBody {
    /// What stands in the ledger: `p_` and 16 random characters.
    pseudonym: String,
    /// The id of the actor, as the token has it.
    person: String,
    /// When the pseudonym was made.
    #[schema(format = DateTime)]
    since: String,
}

/// People in the ledger.
#[derive(Serialize, ToSchema)]
pub(crate) struct PeopleBody {
    /// By their ids.
    people: Vec<PersonBody>,
}

impl From<PersonRow> for PersonBody {
    fn from(row: PersonRow) -> Self {
        Self {
            pseudonym: row.pseudonym,
            person: row.person,
            since: row.since.to_string(),
        }
    }
}

/// Lists the people in the ledger, who stand there under pseudonyms.
#[utoipa::path(
    get, path = "/v1/people", tag = "administer", operation_id = "listPeople",
    responses(
        (status = 200, description = "The people", body = PeopleBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_people(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance, Role::Admin])?;
    let people = app.recorder.people(caller, None).await?;
    let people = people.into_iter().map(PersonBody::from).collect();
    Ok((NO_STORE, axum::Json(PeopleBody { people })).into_response())
}

/// Finds out whom a pseudonym stands for.
#[utoipa::path(
    get, path = "/v1/people/{pseudonym}", tag = "administer", operation_id = "readPerson",
    params(("pseudonym" = String, Path, description = "As it stands in the ledger")),
    responses(
        (status = 200, description = "The person", body = PersonBody),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_person(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(pseudonym): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Compliance, Role::Admin])?;
    check(&pseudonym)?;
    let mut people = app.recorder.people(caller, Some(pseudonym)).await?;
    let person = people.pop().map(PersonBody::from);
    Ok((NO_STORE, axum::Json(person)).into_response())
}

/// Forgets whom a pseudonym stands for: from then on it leads nowhere. What stands in the ledger stays as it is; a person
/// who is stated again gets another pseudonym.
#[utoipa::path(
    delete, path = "/v1/people/{pseudonym}", tag = "administer", operation_id = "forgetPerson",
    params(("pseudonym" = String, Path, description = "As it stands in the ledger")),
    responses(
        (status = 204, description = "Forgotten"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", description = "Not done", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn forget_person(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Path(pseudonym): Path<String>,
) -> Result<Response, Problem> {
    caller.needs(&[Role::Admin])?;
    check(&pseudonym)?;
    app.recorder.forget_person(caller, pseudonym).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn check(pseudonym: &str) -> Result<(), Problem> {
    let is_letter = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
    let fits = |rest: &str| rest.len() == 16 && rest.bytes().all(is_letter);
    if pseudonym.strip_prefix("p_").is_some_and(fits) {
        return Ok(());
    }
    let expected = "`p_` and 16 characters of 0-9 and a-z, as it stands in the ledger";
    Err(Problem::parameter("pseudonym", expected))
}
