// One dialog: to confirm something, or to give a name.

const get = (id) => document.getElementById(id);

// Resolves when `act` has done its work, or the person has said no. `act` is given the name; what it
// throws is told in the dialog, which stays open.
export function ask({ title, text = "", yes, name = null, act }) {
  const dialog = get("dialog");
  get("dialog-title").textContent = title;
  get("dialog-text").textContent = text;
  get("dialog-text").hidden = !text;
  get("dialog-field").hidden = name === null;
  get("dialog-name").value = name ?? "";
  get("dialog-error").textContent = "";
  get("dialog-yes").textContent = yes;
  get("dialog-no").onclick = () => dialog.close();
  dialog.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    try {
      await act(get("dialog-name").value.trim());
      dialog.close();
    } catch (error) {
      get("dialog-error").textContent = error.message;
    }
  };
  dialog.showModal();
  if (name !== null) get("dialog-name").select();
  return new Promise((resolve) => (dialog.onclose = resolve));
}
