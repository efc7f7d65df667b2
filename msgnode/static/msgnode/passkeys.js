// Passkeys (WebAuthn): a form with an offer makes one, a form with a question uses one, and posts
// what the browser says as JSON in the field `passkey`. Binary values travel as base64url.

const toBytes = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
const toText = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");
const listed = (credentials) =>
  credentials?.map((each) => ({ ...each, id: toBytes(each.id) })) ?? [];

function creation(offer) {
  const { challenge, user, excludeCredentials } = offer.publicKey;
  return {
    publicKey: {
      ...offer.publicKey,
      challenge: toBytes(challenge),
      user: { ...user, id: toBytes(user.id) },
      excludeCredentials: listed(excludeCredentials),
    },
  };
}

function request(question) {
  const { challenge, allowCredentials } = question.publicKey;
  return {
    publicKey: {
      ...question.publicKey,
      challenge: toBytes(challenge),
      allowCredentials: listed(allowCredentials),
    },
  };
}

/** What a browser has made or signed, as JSON. */
function written(credential) {
  const said = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature"])
    if (credential.response[name]) said[name] = toText(credential.response[name]);
  if (credential.response.userHandle) said.userHandle = toText(credential.response.userHandle);
  return JSON.stringify({
    id: credential.id,
    rawId: toText(credential.rawId),
    type: credential.type,
    response: said,
    clientExtensionResults: {},
  });
}

async function questionOf(form) {
  if (form.dataset.passkeyQuestion) return JSON.parse(form.dataset.passkeyQuestion);
  const token = form.querySelector("[name=csrfmiddlewaretoken]").value;
  const answer = await fetch(form.dataset.passkeyAsk, {
    method: "POST",
    headers: { "X-CSRFToken": token, Accept: "application/json" },
  });
  if (!answer.ok) throw new Error("The node does not ask for passkeys now. Wait a minute.");
  return answer.json();
}

async function use(form) {
  const { passkeyOffer } = form.dataset;
  return passkeyOffer
    ? navigator.credentials.create(creation(JSON.parse(passkeyOffer)))
    : navigator.credentials.get(request(await questionOf(form)));
}

for (const form of document.querySelectorAll(
  "[data-passkey-offer], [data-passkey-question], [data-passkey-ask]",
)) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fault = form.querySelector("[role=alert]");
    fault.hidden = true;
    try {
      form.elements.passkey.value = written(await use(form));
      form.submit();
    } catch (error) {
      const isRefused = error.name === "NotAllowedError";
      fault.textContent = isRefused ? "Nothing was chosen, or it took too long." : error.message;
      fault.hidden = false;
    }
  });
}
