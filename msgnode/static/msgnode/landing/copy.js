/** Buttons that copy the text of the element they name; the button says what came of it. */

for (const button of document.querySelectorAll("[data-copies]")) {
  const says = button.textContent;
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copies).textContent;
    const done = await navigator.clipboard.writeText(text).then(
      () => "Copied",
      () => "Select it, then copy",
    );
    button.textContent = done;
    setTimeout(() => (button.textContent = says), 2500);
  });
}
